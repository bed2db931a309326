// The service announces new versions; the page then fetches itself and replaces its content.
const alive = document.querySelector("#alive");
const versions = new EventSource("v1/events");

versions.addEventListener("version", async ({ data }) => {
  alive.textContent = "live";
  if (data === document.querySelector("main").dataset.version) return;
  const answer = await fetch(location.pathname, { cache: "no-store" });
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const { id } of document.querySelectorAll("details[open]")) fresh.getElementById(id)?.setAttribute("open", "");
  document.querySelector("main").replaceWith(fresh.querySelector("main"));
  document.title = fresh.title;
});
versions.addEventListener("error", () => { alive.textContent = "connection lost; reconnecting"; });

// Decisions about unknown classes and items; the next version of the page no longer has them.
document.addEventListener("click", async ({ target }) => {
  const button = target.closest(".decide button");
  if (!button) return;
  const { kind, name } = button.closest("tr").dataset;
  const decisions = [{ kind, name, becomes: button.dataset.becomes ?? null }];
  const answer = await fetch("v1/review", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ decisions }) });
  const cell = button.closest("td");
  cell.textContent = answer.ok ? "stored; the next fit uses it" : (await answer.json()).detail;
});
