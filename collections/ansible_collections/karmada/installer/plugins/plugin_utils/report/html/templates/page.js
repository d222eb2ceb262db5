// SPDX-License-Identifier: Apache-2.0
// Tables that are sorted by their headers, and a filter. Without it the page shows the same, problems first.
"use strict";

const words = new Intl.Collator("en", { numeric: true });

function key(row, column) {
  const cell = row.cells[column];
  return cell.dataset.key ?? cell.textContent.trim();
}

function sort(table, header) {
  const down = header.getAttribute("aria-sort") === "ascending";
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => [key(row, header.cellIndex), row]);
  rows.sort(([one], [other]) => (down ? words.compare(other, one) : words.compare(one, other)));
  body.append(...rows.map(([, row]) => row));
  for (const each of header.parentElement.cells) each.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", down ? "descending" : "ascending");
}

// On narrow screens tables are shown as lists, with which some browsers no longer take them for tables.
const roles = { TABLE: "table", THEAD: "rowgroup", TBODY: "rowgroup", TR: "row", TD: "cell" };
for (const each of document.querySelectorAll("table, thead, tbody, tr, td")) each.setAttribute("role", roles[each.tagName]);
for (const each of document.querySelectorAll("th")) each.setAttribute("role", each.scope === "row" ? "rowheader" : "columnheader");

for (const table of document.querySelectorAll("table.sortable")) {
  for (const header of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    button.addEventListener("click", () => sort(table, header));
    header.append(button);
  }
}

for (const input of document.querySelectorAll("[data-filters]")) {
  const paragraph = input.closest("p");
  const told = paragraph.querySelector("[role=status]");
  const rows = [...document.getElementById(input.dataset.filters).rows];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  input.addEventListener("input", () => {
    const wanted = input.value.trim().toLowerCase();
    let shown = 0;
    rows.forEach((row, number) => {
      row.hidden = !texts[number].includes(wanted);
      shown += row.hidden ? 0 : 1;
    });
    told.textContent = wanted ? `${shown} of ${rows.length} shown` : "";
  });
  paragraph.hidden = rows.length < 10;
}
