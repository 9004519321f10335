"use strict";

const root = document.documentElement;
const systemDark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : systemDark.matches);

function startTheme(button) {
  const label = () => { button.textContent = isDark() ? "Light" : "Dark"; };
  button.hidden = false;
  button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; label(); });
  systemDark.addEventListener("change", label);
  label();
}

// A number with its marks and unit: "12.3*", "~1,234", "45.1%", "34 ms"; not "16, 32" or "1 of 32".
const NUMBER = /^[~<>]?\s*([-+]?[\d,]*\.?\d+)\D*$/;
const ORDER = { none: "ascending", ascending: "descending", descending: "none" };
const collator = new Intl.Collator("en", { numeric: true });

// The first line of a cell; the second is its interval.
function firstLine(cell) {
  const nodes = [...cell.childNodes];
  const end = nodes.findIndex((node) => node.nodeName === "BR");
  return nodes.slice(0, end < 0 ? nodes.length : end).map((node) => node.textContent).join("").trim();
}

function compareTexts(texts) {
  const matches = texts.map((text) => NUMBER.exec(text));
  if (!matches.every(Boolean)) return collator.compare;
  const numbers = new Map(texts.map((text, at) => [text, Number(matches[at][1].replaceAll(",", ""))]));
  return (a, b) => numbers.get(a) - numbers.get(b);
}

// Cells without a value ("-" or nothing) stay last in both directions.
function sorted(rows, column, direction) {
  const keyed = rows.map((row) => ({ row, text: firstLine(row.cells[column]) }));
  const [known, missing] = [keyed.filter((one) => !isMissing(one.text)), keyed.filter((one) => isMissing(one.text))];
  const compare = compareTexts(known.map((one) => one.text));
  const sign = direction === "descending" ? -1 : 1;
  known.sort((a, b) => sign * compare(a.text, b.text));
  return [...known, ...missing].map((one) => one.row);
}

const isMissing = (text) => text === "" || text === "-";

function startTable(table) {
  const body = table.tBodies[0];
  const original = [...body.rows];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    head.ariaSort = "none";
    button.addEventListener("click", () => {
      const direction = ORDER[head.ariaSort];
      heads.forEach((other) => { other.ariaSort = "none"; });
      head.ariaSort = direction;
      body.append(...(direction === "none" ? original : sorted(original, column, direction)));
    });
  });
}

startTheme(document.getElementById("theme"));
document.querySelectorAll("table").forEach(startTable);
