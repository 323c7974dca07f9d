for (const table of document.querySelectorAll("table[data-filter]")) {
  const field = document.createElement("input");
  const count = document.createElement("output");
  field.type = "search";
  field.placeholder = "filter these rows";
  field.setAttribute("aria-label", "filter the rows of: " + table.caption.textContent);
  const rows = [...table.tBodies[0].rows];
  const said = rows.map(row => [...row.cells].filter(cell => !cell.querySelector("details"))
    .map(cell => cell.textContent + " " + (cell.firstElementChild?.title ?? ""))
    .join(" ").toLowerCase());
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(" ");
    rows.forEach((row, at) => row.hidden = !words.every(word => said[at].includes(word)));
    const shown = rows.filter(row => !row.hidden).length;
    count.textContent = field.value && `${shown} of ${rows.length}`;
  });
  table.caption.append(field, count);
}
