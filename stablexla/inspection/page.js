"use strict";
const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
const numbers = (line) => line.dataset.ops.split(" ");
const lines = all("[data-ops]");

// Marks every line and row of the operations of the one that was clicked: "marked" are those of nothing else,
// "shared" those that hold other operations too. Brings the first of each column into view.
function mark(chosen) {
  const wanted = new Set(chosen ? numbers(chosen) : []);
  const first = new Map();
  for (const line of lines) {
    const own = numbers(line);
    const marked = own.every((n) => wanted.has(n));
    const shared = !marked && own.some((n) => wanted.has(n));
    line.classList.toggle("marked", marked);
    line.classList.toggle("shared", shared);
    line.classList.toggle("chosen", line === chosen);
    const column = line.closest("section");
    if (column && (marked || (shared && !first.has(column)))) {
      if (!first.get(column)?.classList.contains("marked")) first.set(column, line);
    }
  }
  for (const [column, line] of first) if (column !== chosen.closest("section")) show(column, line);
}

function show(column, line) {
  column.scrollTop += line.getBoundingClientRect().top - column.getBoundingClientRect().top - column.clientHeight / 3;
}

// A number with its unit as one number, so that 1.5 KiB comes after 900 B; NaN for what is not one.
const UNITS = { "": 1, "%": 1, B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40, k: 1e3, M: 1e6, G: 1e9, T: 1e12 };
function value(text) {
  const found = /^(-?[\d.]+) ?([A-Za-z%]*)$/.exec(text.trim());
  return found && found[2] in UNITS ? found[1] * UNITS[found[2]] : text.trim() === "many" ? Infinity : NaN;
}

function compare(one, other) {
  const [a, b] = [value(one), value(other)];
  if (Number.isNaN(a) !== Number.isNaN(b)) return Number.isNaN(a) ? -1 : 1;
  if (Number.isNaN(a)) return one.localeCompare(other, undefined, { numeric: true });
  return a === b ? 0 : a - b;
}

function sort(head) {
  const place = head.cellIndex;
  const body = head.closest("table").tBodies[0];
  const was = head.getAttribute("aria-sort");
  const down = was ? was === "ascending" : head.classList.contains("n"); // of numbers the largest first
  for (const each of head.parentNode.cells) each.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const cell = (row) => row.cells[place].textContent;
  const rows = [...body.rows].sort((a, b) => compare(cell(a), cell(b)) * (down ? -1 : 1));
  body.append(...rows);
}

// Tables keep the rows that hold the text; stages keep their lines, since one says little without those around it.
function search(text) {
  const wanted = text.trim().toLowerCase();
  const holds = (part) => part.textContent.toLowerCase().includes(wanted);
  let rows = 0;
  let found = 0;
  for (const row of all("tbody tr")) {
    row.hidden = wanted !== "" && !holds(row);
    rows += !row.hidden;
  }
  for (const table of all("details")) if (wanted && all("tbody tr:not([hidden])", table).length) table.open = true;
  for (const column of all("section[data-stage]")) {
    let first = null;
    for (const line of all("pre > span", column)) {
      const here = wanted !== "" && holds(line);
      line.classList.toggle("found", here);
      found += here;
      if (here && !first) first = line;
    }
    if (first) show(column, first);
  }
  document.getElementById("count").textContent = wanted ? `${rows} rows, ${found} lines` : "";
}

for (const line of lines) line.addEventListener("click", () => mark(line));
for (const head of all("th")) {
  head.tabIndex = 0;
  head.addEventListener("click", () => sort(head));
  head.addEventListener("keydown", (event) => event.key === "Enter" && sort(head));
}
document.getElementById("search").addEventListener("input", (event) => search(event.target.value));
document.addEventListener("keydown", (event) => event.key === "Escape" && mark(null));
document.getElementById("wrap").addEventListener("change", (event) =>
  document.getElementById("stages").classList.toggle("wrapped", event.target.checked));
for (const box of all("input[data-stage]")) {
  box.addEventListener("change", () => {
    for (const column of all("section[data-stage]"))
      if (column.dataset.stage === box.dataset.stage) column.hidden = !box.checked;
  });
}
