// The threshold: what the page says at each was worked out before, so that all there is to do is to put it in its place.

const { steps, names, words, levels } = JSON.parse(document.getElementById("told").textContent);
const box = document.getElementById("threshold"), form = box.querySelector("form");
const slider = document.getElementById("enough"), output = form.querySelector("output");
const places = [...document.querySelectorAll("[data-at]")], changing = [...document.querySelectorAll("[data-set]")];
const items = document.getElementById("item-list");

const recount = () => {
  const confidence = Number(slider.value) / 100;
  const level = levels[steps.indexOf(confidence)];
  const say = name => words[level[names.indexOf(name)]];
  output.textContent = say("threshold");
  slider.setAttribute("aria-valuetext", say("threshold"));
  for (const place of places) place.textContent = say(place.dataset.at);
  for (const one of changing) one.setAttribute(...one.dataset.set.split(":").map((word, i) => i ? say(word) : word));
  for (const step of document.querySelectorAll("[data-step]")) {
    step.hidden = !say(`${step.dataset.step}_text`);
    const command = step.querySelector(".command");
    if (command) command.hidden = !say(`${step.dataset.step}_command`);
  }
  for (const curve of document.querySelectorAll("[data-curve]")) curve.hidden = curve.dataset.curve !== say("curve");
  if (!items) return;
  for (const item of items.children) {
    item.dataset.kind = Number(item.dataset.confidence) < confidence ? item.dataset.below : item.dataset.above;
  }
  items.dispatchEvent(new Event("recount"));
};

form.hidden = false;
form.addEventListener("submit", event => event.preventDefault());
slider.addEventListener("input", recount);
