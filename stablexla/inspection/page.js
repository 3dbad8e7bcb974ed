"use strict";
const numbers = (line) => line.dataset.ops.split(" ");
const lines = [...document.querySelectorAll("[data-ops]")];

// Marks every line and row that shares an operation with the one that was clicked, and brings the first of each
// column into view.
function mark(chosen) {
  const wanted = new Set(numbers(chosen));
  const seen = new Set();
  for (const line of lines) {
    const shares = numbers(line).some((n) => wanted.has(n));
    line.classList.toggle("marked", shares);
    const column = line.closest("section");
    if (shares && column && !seen.has(column) && column !== chosen.closest("section")) {
      seen.add(column);
      column.scrollTop = line.offsetTop - column.offsetTop - column.clientHeight / 3;
    }
  }
}

for (const line of lines) line.addEventListener("click", () => mark(line));
for (const box of document.querySelectorAll("input[data-stage]")) {
  box.addEventListener("change", () => {
    for (const column of document.querySelectorAll("section[data-stage]"))
      if (column.dataset.stage === box.dataset.stage) column.hidden = !box.checked;
  });
}
