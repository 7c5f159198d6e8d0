// The names of the console's components, of which a search finds one place; and the length of its lines.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import test from "node:test";

const CONSOLE = new URL("../../console/", import.meta.url).pathname;

/** The console's own modules, by their paths in its folder. */
const modules = readdirSync(CONSOLE, { recursive: true, encoding: "utf8" })
  .filter((path) => path.endsWith(".js") && !path.startsWith("vendor/"))
  .map((path) => [path, readFileSync(join(CONSOLE, path), "utf8")]);

test("a component or a class has a name of its own", () => {
  const places = new Map();
  for (const [path, text] of modules) {
    for (const [, name] of text.matchAll(/^(?:export )?(?:default )?(?:async )?(?:function|class) ([A-Z]\w*)/gm))
      places.set(name, [...(places.get(name) ?? []), path]);
    for (const [, name] of text.matchAll(/^(?:export )?const ([A-Z][a-z]\w*) =/gm))
      places.set(name, [...(places.get(name) ?? []), path]);
  }
  assert.ok(places.size > 100);
  assert.deepEqual(
    [...places].filter(([, paths]) => paths.length > 1),
    [],
  );
});

/** What a line may not be broken in: a regular expression. */
const WHOLE = /^\s*\/.*\/[a-z]*[,;]?$/;

test("no line has more than 120 characters", () => {
  const long = modules.flatMap(([path, text]) =>
    text.split("\n").flatMap((line, at) => (line.length > 120 && !WHOLE.test(line) ? [`${path}:${at + 1}`] : [])),
  );
  assert.deepEqual(long, []);
});
