// Annotators: sorting, and a minimum accuracy that the reader sets.

const list = document.getElementById("people-list");
const sort = document.querySelector("form[data-for=people-list]").elements.sort;
const compare = new Intl.Collator(undefined, { numeric: true }).compare;

sort.addEventListener("change", () => {
  const key = sort.value, sign = "down" in sort.selectedOptions[0].dataset ? -1 : 1;
  const order = key === "name" ? compare : (a, b) => a - b;
  list.append(...[...list.children].sort((a, b) => sign * order(a.dataset[key], b.dataset[key])));
  list.dispatchEvent(new Event("recount"));
});

const form = document.getElementById("line-form"), line = document.getElementById("line");
const output = form.querySelector("output");
const draw = () => {
  const at = Number(line.value) / 100;
  let below = 0, unclear = 0;
  for (const row of list.children) {
    const isBelow = Number(row.dataset.high) < at, isUnclear = !isBelow && Number(row.dataset.low) < at;
    below += isBelow;
    unclear += isUnclear;
    row.dataset.side = isBelow ? "below" : isUnclear ? "unclear" : "above";
    row.dataset.kind = [...row.dataset.kind.split(" ").filter(word => word !== "below"), ...(isBelow ? ["below"] : [])].join(" ");
  }
  list.style.setProperty("--cut", `${line.value}%`);
  document.getElementById("line-at").textContent = `${line.value}\u00a0%`;
  output.textContent = `${below} clearly below, ${unclear} unclear, ${list.children.length - below - unclear} clearly above`;
  list.dispatchEvent(new Event("recount"));
};
form.hidden = false;
form.addEventListener("submit", event => event.preventDefault());
line.addEventListener("input", draw);
draw();
