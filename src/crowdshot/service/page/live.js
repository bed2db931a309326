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
