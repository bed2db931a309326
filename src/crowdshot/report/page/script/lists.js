// Filters long lists by kind and by words, and shows a few more rows at a time. Accepted items (data-kind="accepted")
// are shown only if that kind is selected.

for (const list of document.querySelectorAll("[data-most]")) {
  const form = document.querySelector(`form[data-for="${list.id}"]`);
  const more = document.querySelector(`button[data-more="${list.id}"]`);
  const step = Number(list.dataset.most);
  const texts = new Map();
  let most = step;
  const text = row => {
    if (!texts.has(row)) texts.set(row, row.textContent.toLowerCase());
    return texts.get(row);
  };
  const show = () => {
    const kind = form.elements.kind.value;
    const words = form.elements.text.value.toLowerCase().split(/\s+/).filter(Boolean);
    let found = 0;
    for (const row of list.children) {
      const kinds = row.dataset.kind;
      const fits = (kind ? kinds.split(" ").includes(kind) : kinds !== "accepted") && words.every(word => text(row).includes(word));
      found += fits;
      row.hidden = !fits || found > most;
    }
    // data-totals counts items that the page does not contain as well
    const total = list.dataset.totals && !words.length ? JSON.parse(list.dataset.totals)[kind] : found;
    form.querySelector("output").textContent = `${Math.min(found, most)} of ${total} shown`;
    more.parentElement.hidden = found <= most;
  };
  form.hidden = false;
  form.addEventListener("submit", event => event.preventDefault());
  form.addEventListener("input", () => { most = step; show(); });
  more.addEventListener("click", () => { most += step; show(); });
  list.addEventListener("recount", show);
  show();
}
