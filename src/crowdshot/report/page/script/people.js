// Annotators: sorted, and on either side of a line that the reader sets.

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
  let below = 0, perhaps = 0;
  for (const row of list.children) {
    const surely = Number(row.dataset.high) < at, maybe = !surely && Number(row.dataset.low) < at;
    below += surely;
    perhaps += maybe;
    row.dataset.side = surely ? "below" : maybe ? "perhaps" : "above";
    row.dataset.kind = [...row.dataset.kind.split(" ").filter(word => word !== "below"), ...(surely ? ["below"] : [])].join(" ");
  }
  list.style.setProperty("--cut", `${line.value}%`);
  document.getElementById("line-at").textContent = `${line.value}\u00a0%`;
  output.textContent = `${below} surely below, ${perhaps} perhaps, ${list.children.length - below - perhaps} surely above`;
  list.dispatchEvent(new Event("recount"));
};
form.hidden = false;
form.addEventListener("submit", event => event.preventDefault());
line.addEventListener("input", draw);
draw();
