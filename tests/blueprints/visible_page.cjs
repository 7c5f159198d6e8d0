// Prints, of every code point before a given one, whether the console's rule escapes it: one character for each, "1" or "0".
const fs = require("node:fs");

const source = fs.readFileSync(process.argv[2], "utf8");

import(`data:text/javascript;base64,${Buffer.from(source).toString("base64")}`).then(({ visible }) => {
  const marks = [];
  for (let point = 0; point < Number(process.argv[3]); point++) {
    const character = String.fromCodePoint(point),
      shown = visible(character);
    if (shown !== character && shown !== `\\u{${point.toString(16)}}`) throw new Error(`${point}: ${shown}`);
    // Characters that a newer Unicode has, and an older one does not know.
    marks.push(/\p{Cn}/u.test(character) ? "?" : shown === character ? "0" : "1");
  }
  process.stdout.write(marks.join(""));
});
