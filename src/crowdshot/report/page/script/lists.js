// What is shown of a long list: by kind, by words in it, and a few more at a time. Settled items are never shown.

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
      const of = row.dataset.kind;
      const fits = (kind ? of.split(" ").includes(kind) : of !== "accepted") && words.every(word => text(row).includes(word));
      found += fits;
      row.hidden = !fits || found > most;
    }
    form.querySelector("output").textContent = `${Math.min(found, most)} of ${found} shown`;
    more.parentElement.hidden = found <= most;
  };
  form.hidden = false;
  form.addEventListener("submit", event => event.preventDefault());
  form.addEventListener("input", () => { most = step; show(); });
  more.addEventListener("click", () => { most += step; show(); });
  list.addEventListener("recount", show);
  show();
}
