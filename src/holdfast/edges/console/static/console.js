// The console without it works; with it, lists change in place, times are the viewer's, and keys move around.

const same = (url) => new URL(url, location.href).origin === location.origin;

/** Times in the viewer's zone, with the exact time in UTC beside them. */
function localize(root) {
  if (Intl.DateTimeFormat().resolvedOptions().timeZone === "UTC") return;
  const clock = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit" });
  for (const time of root.querySelectorAll("time[datetime]:not([data-day], [data-local])")) {
    const utc = document.createElement("small");
    utc.className = "unit";
    utc.textContent = ` ${time.dateTime.replace("T", " ").replace("Z", "")} UTC`;
    time.textContent = clock.format(new Date(time.dateTime));
    time.dataset.local = "";
    time.append(utc);
  }
}

let asked = 0;

/** Put the page at an address in place of the one that is shown. */
async function load(url, { push = true, focus = true } = {}) {
  const turn = ++asked;
  let answer;
  try {
    answer = await fetch(url, { headers: { Accept: "text/html" } });
  } catch {
    if (push) location.assign(url);
    return;
  }
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const found = page.querySelector("main");
  if (turn !== asked) return;
  if (!found || !same(answer.url)) return location.assign(url);
  const active = document.activeElement;
  const kept = active?.closest("form[data-part]") ? active.name : null;
  document.querySelector("main").replaceWith(document.adoptNode(found));
  document.title = page.title;
  if (push) history.pushState(null, "", answer.url);
  prepare(found);
  const again = kept && found.querySelector(`form[data-part] [name="${CSS.escape(kept)}"]`);
  if (again) again.focus();
  else if (focus) found.focus({ preventScroll: !push });
}

/** What a form with a GET method asks for. */
function addressOf(form) {
  const url = new URL(form.getAttribute("action"), location.href); // a field may be called "action"
  url.search = new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== "")).toString();
  return url.href;
}

/** Lets a page that was just put in place be used. */
function prepare(main) {
  localize(main);
  const wait = Number(main.dataset.refresh);
  if (wait > 0) {
    const path = location.href;
    setTimeout(() => location.href === path && load(path, { push: false, focus: false }), wait * 1000);
  }
  for (const slider of main.querySelectorAll("input[type=range][data-labels]")) {
    const labels = slider.dataset.labels.split("|");
    const shown = main.querySelector(`output[for="${CSS.escape(slider.id)}"]`);
    const tell = () => {
      const label = labels[slider.value - slider.min] ?? slider.value;
      slider.setAttribute("aria-valuetext", label);
      if (shown) shown.textContent = label;
    };
    slider.addEventListener("input", tell);
    slider.addEventListener("change", () => load(addressOf(slider.form)));
    tell();
  }
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-part], [data-parts] a");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  load(link.href);
});

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.getAttribute("method") === "post") {
    if (form.dataset.sent) event.preventDefault(); // a double click asks once
    form.dataset.sent = "yes";
  }
  if (form.getAttribute("method") === "post" || !form.matches("[data-part]")) return;
  event.preventDefault();
  load(addressOf(form));
});

document.addEventListener("change", (event) => {
  const form = event.target.form;
  if (event.target.matches("select") && form?.matches("[data-part]")) load(addressOf(form));
});

addEventListener("pageshow", () => document.querySelectorAll("form[data-sent]").forEach((form) => delete form.dataset.sent));
addEventListener("popstate", () => load(location.href, { push: false }));

document.addEventListener("keydown", (event) => {
  if (event.metaKey || event.ctrlKey || event.altKey || event.target.closest("input, textarea, select")) return;
  if (event.key === "/") {
    const search = document.querySelector("main input[type=search]");
    if (!search) return;
    event.preventDefault();
    search.focus();
    search.select();
  } else if (event.key === "j" || event.key === "k") {
    const links = [...document.querySelectorAll("main [data-list] [data-item]")];
    if (!links.length) return;
    const at = links.indexOf(document.activeElement);
    const next = links[Math.min(links.length - 1, Math.max(0, at + (event.key === "j" ? 1 : -1)))];
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  }
});

prepare(document.querySelector("main"));
const here = document.querySelector('nav[aria-label="Console"] [aria-current]');
if (here) here.closest("ul").scrollLeft = here.offsetLeft - 60; // on a phone, the entry may be out of sight
