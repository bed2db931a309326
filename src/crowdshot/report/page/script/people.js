// The table of annotators: a button in each heading sorts.

const compare = new Intl.Collator(undefined, { numeric: true }).compare;
const headings = [...document.querySelectorAll(".people th[data-key]")];
for (const heading of headings) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = heading.textContent;
  heading.replaceChildren(button);
  heading.setAttribute("aria-sort", "none");
  button.addEventListener("click", () => {
    const body = document.getElementById("people-list"), key = heading.dataset.key;
    const up = heading.getAttribute("aria-sort") !== "ascending";
    for (const other of headings) other.setAttribute("aria-sort", "none");
    heading.setAttribute("aria-sort", up ? "ascending" : "descending");
    const order = key === "name" ? compare : (a, b) => a - b;
    const rows = [...body.children].sort((a, b) => (up ? 1 : -1) * order(a.dataset[key], b.dataset[key]));
    body.append(...rows);
    body.dispatchEvent(new Event("recount"));
  });
}
