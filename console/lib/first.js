// Whether there is a conversation yet: before the first one the page says what this is.
import { useEffect, useState } from "preact/hooks";
import { call } from "./api.js";

/** Whether no conversation has been made yet; null before that is known, false where it cannot be asked. */
export function useIsFirst(isAsked = true) {
  const [isFirst, setFirst] = useState(/** @type {boolean | null} */ (null));
  useEffect(() => {
    if (!isAsked || isFirst !== null) return;
    call("GET /api/conversations/count").then(
      (number) => setFirst(number === 0),
      () => setFirst(false),
    );
  }, [isAsked]);
  return isFirst;
}
