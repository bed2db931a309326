// The map: select an item by pointer, tap or arrow keys; show a single class.

const data = JSON.parse(document.getElementById("data").textContent);
const chart = document.getElementById("chart"), svg = document.getElementById("points");
const tip = document.getElementById("tip"), here = document.getElementById("here"), sheet = document.getElementById("sheet");
const picture = tip.querySelector("canvas"), words = tip.querySelector("div");
const SIDE = 96;
let at = -1, alone = -1;

const line = (text, className) => {
  const p = document.createElement("div");
  const b = document.createElement("bdi");
  b.textContent = text;
  if (className) p.className = className;
  p.append(b);
  return p;
};

const choose = i => {
  at = i;
  tip.hidden = i < 0;
  here.setAttribute("cx", i < 0 ? -20 : data.x[i]);
  here.setAttribute("cy", i < 0 ? -20 : data.y[i]);
  if (i < 0) return;
  picture.hidden = !sheet;
  if (sheet && sheet.complete) {
    const ratio = window.devicePixelRatio || 1, tile = data.tile;
    picture.width = picture.height = SIDE * ratio;
    picture.style.width = picture.style.height = `${SIDE}px`;
    const column = i % data.columns, row = Math.floor(i / data.columns);
    picture.getContext("2d").drawImage(sheet, column * tile, row * tile, tile, tile, 0, 0, SIDE * ratio, SIDE * ratio);
  }
  const votes = data.votes[i].map(([k, n]) => `${n} × ${data.classes[k]}`).join(", ");
  const strong = line(`${data.classes[data.label[i]]}, ${data.confidence[i]}`, "strong");
  words.replaceChildren(strong, line(votes ? `labels: ${votes}` : "no labels"), line(data.name[i], "quiet"));
  const box = chart.getBoundingClientRect(), scale = box.width / data.width;
  const x = data.x[i] * scale, y = data.y[i] * scale;
  const left = x + tip.offsetWidth + 24 < box.width ? x + 14 : Math.max(4, x - tip.offsetWidth - 14);
  tip.style.left = `${left}px`;
  tip.style.top = `${Math.max(4, Math.min(y - tip.offsetHeight / 2, box.height - tip.offsetHeight - 4))}px`;
};

const nearest = (x, y, cost, most) => {
  let best = -1;
  for (let i = 0; i < data.x.length; i++) {
    if (alone >= 0 && data.label[i] !== alone) continue;
    const d = cost(data.x[i] - x, data.y[i] - y);
    if (d < most) { most = d; best = i; }
  }
  return best;
};

const point = event => {
  const box = svg.getBoundingClientRect(), scale = data.width / box.width;
  const x = (event.clientX - box.left) * scale, y = (event.clientY - box.top) * scale;
  choose(nearest(x, y, (dx, dy) => dx * dx + dy * dy, (24 * scale) ** 2));
};
chart.addEventListener("pointermove", point);
chart.addEventListener("pointerdown", point);
chart.addEventListener("pointerleave", event => { if (event.pointerType === "mouse") choose(-1); });

const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
chart.tabIndex = 0;
chart.addEventListener("blur", () => choose(-1));
chart.addEventListener("keydown", event => {
  if (event.key === "Escape") choose(-1);
  if (!(event.key in arrows)) return;
  event.preventDefault();
  const [u, v] = arrows[event.key];
  if (at < 0) return choose(nearest(data.width / 2, data.height / 2, (dx, dy) => dx * dx + dy * dy, Infinity));
  // the nearest item ahead; distance sideways counts three times
  const cost = (dx, dy) => {
    const ahead = dx * u + dy * v, aside = Math.abs(dx * v) + Math.abs(dy * u);
    return ahead > 0 && ahead * 2 > aside ? ahead + 3 * aside : Infinity;
  };
  const next = nearest(data.x[at], data.y[at], cost, Infinity);
  if (next >= 0) choose(next);
});

const buttons = [...document.querySelectorAll(".legend button")];
for (const button of buttons) {
  button.disabled = false;
  button.addEventListener("click", () => {
    const k = Number(button.dataset.k);
    alone = alone === k ? -1 : k;
    for (const other of buttons) other.setAttribute("aria-pressed", String(Number(other.dataset.k) === alone));
    svg.classList.toggle("alone", alone >= 0);
    for (const part of svg.querySelectorAll("[data-k]")) part.classList.toggle("on", Number(part.dataset.k) === alone);
    choose(-1);
  });
}
