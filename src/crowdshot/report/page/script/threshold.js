// The threshold slider: the texts for every threshold are in the page; the script inserts those of the chosen one.

const { steps, names, texts, levels } = JSON.parse(document.getElementById("threshold-texts").textContent);
const box = document.getElementById("threshold"), form = box.querySelector("form");
const slider = document.getElementById("enough"), output = form.querySelector("output");
const places = [...document.querySelectorAll("[data-at]")], changing = [...document.querySelectorAll("[data-set]")];
const items = document.getElementById("item-list"), kinds = ["open", "overruled", "unlabelled"];

const recount = () => {
  const confidence = Number(slider.value) / 100;
  const level = levels[steps.indexOf(confidence)];
  const textOf = name => texts[level[names.indexOf(name)]];
  output.textContent = textOf("threshold");
  slider.setAttribute("aria-valuetext", textOf("threshold"));
  for (const place of places) place.textContent = textOf(place.dataset.at);
  for (const one of changing) one.setAttribute(...one.dataset.set.split(":").map((word, i) => i ? textOf(word) : word));
  for (const step of document.querySelectorAll("[data-step]")) {
    step.hidden = !textOf(`${step.dataset.step}_text`);
    const command = step.querySelector(".command");
    if (command) command.hidden = !textOf(`${step.dataset.step}_command`);
  }
  for (const curve of document.querySelectorAll("[data-curve]")) curve.hidden = curve.dataset.curve !== textOf("curve");
  if (!items) return;
  items.dataset.totals = JSON.stringify({ "": textOf("person"), ...Object.fromEntries(kinds.map(kind => [kind, textOf(`n_${kind}`)])) });
  for (const item of items.children) {
    item.dataset.kind = Number(item.dataset.confidence) < confidence ? item.dataset.below : item.dataset.above;
  }
  items.dispatchEvent(new Event("recount"));
};

form.hidden = false;
form.addEventListener("submit", event => event.preventDefault());
slider.addEventListener("input", recount);
