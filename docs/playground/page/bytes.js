// Bytes and their fields, as the viewer of captures shows them; here a byte can be changed.

export function make(name, cls, text) {
  const made = document.createElement(name);
  if (cls) made.className = cls;
  if (text !== undefined) made.textContent = text;
  return made;
}

const hex = (byte) => byte.toString(16).padStart(2, "0");

// The fields without parts, in order, each with the names of those around it.
function leavesOf(fields, around = []) {
  return fields.flatMap((field) => (field[4].length ? leavesOf(field[4], [...around, field[0]]) : [{ field, around }]));
}

// message: one of the history.  change: called with an offset and a value, or nothing if it must not be.
export function showBytes(message, change) {
  const data = Uint8Array.from(atob(message.data), (sign) => sign.charCodeAt(0));
  const title = make("h3", "", "Bytes");
  title.append(make("span", "", `${message.size.toLocaleString("en")} bytes`));
  const digits = make("div", "hex"), tree = make("div", "fields"), editor = make("form", "editor");
  const leaves = leavesOf(message.fields), boxes = [];
  const line = document.getElementById("detail").clientWidth < 430 ? 8 : 16;

  let leaf = 0, tone = 0;
  for (let start = 0; start < data.length; start += line) {
    const run = make("div", "run");
    for (let at = start; at < Math.min(data.length, start + line); at++) {
      while (leaf < leaves.length - 1 && at >= leaves[leaf].field[1] + leaves[leaf].field[2]) {
        leaf++;
        if (leaves[leaf].field[0]) tone = 1 - tone;
      }
      const name = leaves[leaf] ? leaves[leaf].field[0] : "unread";
      const byte = make("button", `byte tone-${tone}${name === "unread" ? " unread" : ""}${name === "" ? " syntax" : ""}`, hex(data[at]));
      byte.type = "button";
      byte.dataset.at = at; byte.dataset.leaf = leaf;
      byte.title = leaves[leaf] ? [...leaves[leaf].around, name].filter(Boolean).join(" › ") : "";
      run.append(byte);
    }
    digits.append(make("div", "at", start.toString(16).padStart(4, "0")), run);
  }

  const mark = (from, to, box) => {
    for (const each of [...digits.querySelectorAll(".on"), ...tree.querySelectorAll(".on")]) each.classList.remove("on");
    for (const each of digits.querySelectorAll(".byte")) {
      each.classList.toggle("on", Number(each.dataset.at) >= from && Number(each.dataset.at) < to);
    }
    if (box) { box.classList.add("on"); box.scrollIntoView({ block: "nearest" }); }
  };
  const branch = (fields, host) => fields.forEach((field) => {
    const [name, offset, size, value, inside] = field;
    const box = name ? make("div", name === "unread" ? "bad" : "") : host;
    if (name) {
      const row = make("div", "row");
      row.append(make("b", "", name), make("span", "", value ?? ""), make("i", "", `${offset} +${size}`));
      row.onclick = () => mark(offset, offset + size, box);
      box.append(row); host.append(box);
    }
    if (!inside.length) boxes.push(name ? box : null);
    else { const within = name ? make("div", "in") : host; if (name) box.append(within); branch(inside, within); }
  });
  branch(message.fields, tree);

  digits.onclick = ({ target }) => {
    if (!target.dataset.at) return;
    const at = Number(target.dataset.at);
    mark(at, at + 1, boxes[Number(target.dataset.leaf)]);
    if (change) edit(editor, at, data[at], change);
  };
  const shown = [title, digits, editor];
  if (message.fault) shown.push(make("div", "trouble", `${message.fault[1]} at byte ${message.fault[0]}${message.fault[2] ? `: ${message.fault[2]}` : ""}`));
  if (change) shown.push(make("p", "when hint", "Press a byte to change it."));
  return [...shown, tree];
}

function edit(editor, at, was, change) {
  const field = make("input");
  Object.assign(field, { value: hex(was), maxLength: 2, size: 2, pattern: "[0-9a-fA-F]{1,2}", required: true });
  field.setAttribute("aria-label", `New value of byte ${at}, two hexadecimal digits`);
  const buttons = [["Change", null], ["+1", (was + 1) % 256], ["flip a bit", was ^ 1]].map(([words, value]) => {
    const button = make("button", "", words);
    if (value !== null) { button.type = "button"; button.onclick = () => change(at, value); }
    return button;
  });
  editor.replaceChildren(make("span", "", `byte ${at}: ${hex(was)} →`), field, ...buttons);
  editor.onsubmit = (event) => { event.preventDefault(); change(at, parseInt(field.value, 16)); };
  field.select();
}
