// Reads a JSON text a line, in base64; answers with what V8 makes of it, or why it makes nothing.

const lines = require("readline").createInterface({ input: process.stdin });

function ascii(text) {
  const escaped = (unit) => "\\u" + unit.charCodeAt(0).toString(16).padStart(4, "0");
  return text.replace(/[\u007f-\uffff]/g, escaped);
}

function answer(text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return { error: "no JSON" };
  }
  try {
    const indented = JSON.stringify(value, null, 2);
    return { compact: JSON.stringify(value), indented, units: indented.length };
  } catch (error) {
    return { error: "too deep" };
  }
}

lines.on("line", (line) => {
  const text = Buffer.from(line, "base64").toString();
  process.stdout.write(ascii(JSON.stringify(answer(text))) + "\n");
});
