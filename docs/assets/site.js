// Three things after a page has loaded: equations are set, and tables of the leaderboard sort and filter.
document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll(".arithmatex").forEach(setEquation);
  document.querySelectorAll(".leaderboard").forEach(makeLeaderboard);
});

function setEquation(element) {
  const tex = element.textContent.trim().slice(2, -2); // without \( \) or \[ \]
  katex.render(tex, element, { displayMode: element.tagName === "DIV", throwOnError: false });
}

function makeLeaderboard(section) {
  const tables = [...section.querySelectorAll("table")];
  tables.forEach((table) => [...table.rows[0].cells].forEach((heading, column) => makeSortable(table, heading, column)));
  const [encoder, text] = section.querySelectorAll(".filter select, .filter input");
  const filter = () => {
    section.querySelectorAll("[data-encoder]").forEach((part) => {
      part.hidden = encoder.value !== "" && part.dataset.encoder !== encoder.value;
    });
    const words = text.value.toLowerCase();
    tables.forEach((table) => [...table.tBodies[0].rows].forEach((row) => {
      row.hidden = !row.textContent.toLowerCase().includes(words);
    }));
  };
  encoder.addEventListener("input", filter);
  text.addEventListener("input", filter);
}

function makeSortable(table, heading, column) {
  heading.setAttribute("aria-sort", "none");
  heading.tabIndex = 0;
  const sort = () => {
    const order = heading.getAttribute("aria-sort") === "descending" ? "ascending" : "descending";
    [...table.rows[0].cells].forEach((other) => other.setAttribute("aria-sort", "none"));
    heading.setAttribute("aria-sort", order);
    const sign = order === "descending" ? -1 : 1;
    const rows = [...table.tBodies[0].rows].sort((a, b) => compare(a.cells[column], b.cells[column], sign));
    table.tBodies[0].append(...rows);
  };
  heading.addEventListener("click", sort);
  heading.addEventListener("keydown", (event) => event.key === "Enter" && sort());
}

// Numbers before text; what is empty comes last in either order.
function compare(a, b, sign) {
  const [left, right] = [a.textContent.trim(), b.textContent.trim()];
  if (left === "" || right === "") return Number(left === "") - Number(right === "");
  const difference = Number.parseFloat(left) - Number.parseFloat(right);
  return sign * (Number.isNaN(difference) ? left.localeCompare(right) : difference);
}
