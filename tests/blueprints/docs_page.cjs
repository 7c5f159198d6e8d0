// Runs the script of the docs page, with a key in the fragment and without one, and checks what it does.
const assert = require("node:assert");
const fs = require("node:fs");
const vm = require("node:vm");

const source = fs.readFileSync(process.argv[2], "utf8");

function run(hash) {
  const seen = { replaced: [], authorized: [] };
  const ui = {
    specSelectors: {
      specJson: () => ({ toJS: () => ({ components: { securitySchemes: { header: {}, bearer: {} } } }) }),
    },
    preauthorizeApiKey: (...words) => seen.authorized.push(words),
  };
  const context = {
    URL,
    URLSearchParams,
    location: { hash, pathname: "/agents/docs", search: "", href: `https://agents.example.org/agents/docs${hash}` },
    history: { replaceState: (...words) => seen.replaced.push(words.at(-1)) },
    SwaggerUIBundle: (config) => Object.assign(seen, { config }) && ui,
  };
  context.window = context;
  vm.runInNewContext(source, context);
  return seen;
}

const plain = run("");
assert.deepEqual(plain.replaced, []);
assert.equal(plain.config.url, "https://agents.example.org/agents/openapi.json");
assert.equal(plain.config.validatorUrl, null);
assert.equal(plain.config.requestInterceptor, undefined);

const keyed = run("#key=a-key_of-16-characters");
assert.deepEqual(keyed.replaced, ["/agents/docs"]);
keyed.config.onComplete();
assert.deepEqual(keyed.authorized, [
  ["header", "a-key_of-16-characters"],
  ["bearer", "a-key_of-16-characters"],
]);
const load = keyed.config.requestInterceptor({ loadSpec: true, headers: {} });
assert.equal(load.headers["X-Session-API-Key"], "a-key_of-16-characters");
assert.deepEqual(keyed.config.requestInterceptor({ headers: {} }).headers, {});
