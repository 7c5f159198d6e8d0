// A value that several components show: each is drawn again after a change.
import { useEffect, useState } from "preact/hooks";

export class Store {
  #value;
  #subscribers = new Set();

  constructor(value) {
    this.#value = value;
  }

  get() {
    return this.#value;
  }

  set(value) {
    if (Object.is(value, this.#value)) return;
    this.#value = value;
    for (const subscriber of [...this.#subscribers]) subscriber(value);
  }

  /** Call `subscriber` with each new value. Returns what ends that. */
  subscribe(subscriber) {
    this.#subscribers.add(subscriber);
    return () => this.#subscribers.delete(subscriber);
  }
}

/** The present value of a store, in a component. */
export function useStore(store) {
  const [value, setValue] = useState(store.get());
  useEffect(() => {
    setValue(() => store.get());
    return store.subscribe((next) => setValue(() => next));
  }, [store]);
  return value;
}
