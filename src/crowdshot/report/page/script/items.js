// Review of items: a reader confirms or corrects labels, in the list or in an enlarged view with keyboard control.
// Decisions are stored in this browser and can be downloaded as a table of true labels.
// A confirmed label (a decision) is not an accepted one (data-kind="accepted": confidence above the threshold).

const { store, classes, items, labels, known } = JSON.parse(document.getElementById("decisions-data").textContent);
const list = document.getElementById("item-list"), cards = [...list.children];
const bar = document.getElementById("decisions"), viewer = document.getElementById("viewer");
const view = viewer.querySelector(".view"), choices = viewer.querySelector(".choices"), other = viewer.querySelector("select");
const key = `crowdshot ${store}`;
let at = -1;

const load = () => { try { return JSON.parse(localStorage.getItem(key)) ?? {}; } catch { return {}; } };
const decided = new Map(Object.entries(load()));
const storeDecisions = () => {
  try {
    localStorage.setItem(key, JSON.stringify(Object.fromEntries(decided)));
    return true;
  } catch { return false; } // storage is full or blocked: decisions last as long as the page is open
};

const element = (tag, text, attributes = {}) => {
  const made = Object.assign(document.createElement(tag), attributes);
  if (text) made.append(text);
  return made;
};
const named = text => element("bdi", text, { className: "name", title: text });

// ---- decisions --------------------------------------------------------------------------------------------------

const show = i => {
  const truth = decided.get(items[i]), card = cards[i];
  card.classList.toggle("decided", truth !== undefined);
  card.querySelector(".decision").replaceChildren(...(truth === undefined ? [] : ["Decided: ", named(truth)]));
  card.querySelector("[data-do=confirm]").hidden = truth !== undefined;
  card.querySelector("[data-do=undo]").hidden = truth === undefined;
};

const showAll = () => {
  cards.forEach((_, i) => show(i));
  const number = items.filter(item => decided.has(item)).length;
  bar.querySelector("output").textContent = number === 1 ? "1 item decided" : `${number} items decided`;
  for (const button of bar.querySelectorAll("button")) button.disabled = !decided.size;
};

const decide = (i, truth) => {
  if (truth === undefined) decided.delete(items[i]); else decided.set(items[i], truth);
  bar.querySelector(".unkept").hidden = storeDecisions();
  showAll();
};

const cell = text => /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
const download = () => {
  const rows = [["item", "truth"], ...new Map([...known, ...decided])];
  const file = new Blob([rows.map(row => row.map(cell).join(",") + "\n").join("")], { type: "text/csv" });
  const link = element("a", "", { href: URL.createObjectURL(file), download: "corrections.csv" });
  link.click();
  URL.revokeObjectURL(link.href);
};

bar.hidden = false;
bar.querySelector("[data-do=download]").addEventListener("click", download);
bar.querySelector("[data-do=forget]").addEventListener("click", () => {
  decided.clear();
  storeDecisions();
  showAll();
});

// ---- enlarged view ----------------------------------------------------------------------------------------------

const shown = () => cards.flatMap((card, i) => card.dataset.kind === "accepted" ? [] : [i]);

const open = i => {
  at = i;
  const body = cards[i].querySelector(".body").cloneNode(true), picture = cards[i].querySelector(".preview");
  body.querySelector(".actions").remove();
  view.dataset.kind = cards[i].dataset.kind;
  view.replaceChildren(...(picture ? [picture.cloneNode(true)] : []), body);
  const truth = decided.get(items[i]);
  const likely = [...cards[i].querySelectorAll(".guesses [data-k]")].map(guess => Number(guess.dataset.k)).slice(0, 9);
  choices.replaceChildren(...likely.map((k, place) => {
    const button = element("button", "", { type: "button" });
    button.append(element("kbd", String(place + 1)), " ", named(classes[k]));
    button.setAttribute("aria-pressed", String(truth === classes[k]));
    button.addEventListener("click", () => choose(classes[k]));
    return button;
  }));
  const place = classes.indexOf(truth);
  other.value = place < 0 || likely.includes(place) ? "" : String(place);
  const row = shown(), here = row.indexOf(i);
  viewer.querySelector(".place").textContent = `${here + 1} of ${row.length}`;
  viewer.querySelector("[data-do=back]").disabled = here <= 0;
  viewer.querySelector("[data-do=on]").disabled = here >= row.length - 1;
  if (!viewer.open) viewer.showModal();
  if (document.activeElement === document.body) viewer.focus(); // the focused button was replaced; the viewer must keep receiving keys
};

const step = by => {
  const row = shown(), next = row[row.indexOf(at) + by];
  if (next !== undefined) open(next);
};

const choose = truth => {
  decide(at, truth);
  const row = shown(), left = row.slice(row.indexOf(at) + 1).find(i => !decided.has(items[i]));
  open(left ?? at);
};

viewer.tabIndex = -1;
for (const [k, text] of classes.entries()) other.append(element("option", text, { value: String(k) }));
other.addEventListener("change", () => { if (other.value) choose(classes[Number(other.value)]); });
viewer.querySelector("[data-do=back]").addEventListener("click", () => step(-1));
viewer.querySelector("[data-do=on]").addEventListener("click", () => step(1));
viewer.querySelector("[data-do=close]").addEventListener("click", () => viewer.close());
viewer.addEventListener("click", event => { if (event.target === viewer) viewer.close(); });
viewer.addEventListener("close", () => cards[at].querySelector("[data-do=open]").focus());
viewer.addEventListener("keydown", event => {
  if (event.target === other || event.ctrlKey || event.metaKey || event.altKey) return;
  const button = choices.children[Number(event.key) - 1];
  if (event.key === "ArrowLeft") step(-1);
  else if (event.key === "ArrowRight") step(1);
  else if (event.key === "c" || event.key === "a") choose(classes[labels[at]]);
  else if (event.key === "u") { decide(at); open(at); }
  else if (button) button.click();
  else return;
  event.preventDefault();
});

// ---- buttons in the list ----------------------------------------------------------------------------------------

cards.forEach((card, i) => {
  const actions = element("div", "", { className: "actions" });
  const button = (action, ...content) => {
    const made = element("button", "", { type: "button" });
    made.dataset.do = action;
    made.append(...content);
    actions.append(made);
    return made;
  };
  actions.append(element("p", "", { className: "decision" }));
  button("confirm", "Confirm ", named(classes[labels[i]])).addEventListener("click", () => decide(i, classes[labels[i]]));
  button("undo", "Undo").addEventListener("click", () => decide(i));
  button("open", "Correct…").addEventListener("click", () => open(i));
  card.querySelector(".body").append(actions);
  const preview = card.querySelector(".preview");
  if (preview) {
    preview.title = "Enlarge";
    preview.addEventListener("click", () => open(i));
  }
});
showAll();
