// What modules of the console ask of a page when they are loaded, for tests that run without a browser.
const kept = () => {
  const values = new Map();
  return {
    getItem: (name) => values.get(name) ?? null,
    setItem: (name, value) => values.set(name, String(value)),
    removeItem: (name) => values.delete(name),
  };
};

Object.assign(globalThis, {
  addEventListener: () => {},
  document: { hidden: true, addEventListener: () => {}, querySelector: () => null },
  history: { replaceState: () => {} },
  localStorage: kept(),
  navigator: {},
  location: new URL("https://agents.example/console/"),
  sessionStorage: kept(),
  window: globalThis,
});

// The clock of lib/words.js would keep a test from ending.
const every = globalThis.setInterval;
globalThis.setInterval = (...given) => every(...given).unref();
