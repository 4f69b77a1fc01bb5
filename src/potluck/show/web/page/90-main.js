// Which page is shown, and what it is made of.

const LINKS = {
  live: "live",
  over: "over",
  kept: "saved copy",
  lost: "Connection lost, trying again",
  refused: "not here",
};
const linkMark = document.getElementById("link");
const main = document.getElementById("main");

function setLink(state) {
  linkMark.dataset.link = state;
  write(linkMark, LINKS[state]);
  document.body.dataset.link = state;
}

// ------------------------------------------------------------------ routes

let current = null;

function route() {
  const [, kind = "", id = "", part = ""] = location.hash.slice(1).split("/");
  return { kind, id: decoded(id), part };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function leave() {
  current?.end();
  waiting.clear();
  seen.clear();
  main.replaceChildren();
}

async function open() {
  const asked = kept ? keptRoute() : route();
  if (current && current.kind === asked.kind && current.id === asked.id) {
    current.part?.(asked.part);
    return;
  }
  leave();
  const { kind, id } = asked;
  if (kept) openKept(asked);
  else if (kind === "run") current = { kind, id, ...runPage(main, id, asked.part) };
  else if (Object.hasOwn(pages, kind)) current = { kind, id, end: pages[kind](main, id) };
  else current = { kind, id, end: startPage(main) };
  if (!asked.part) scrollTo(0, 0);
}

/** A kept file is always at one of its runs: the first one where the address names none. */
function keptRoute() {
  const asked = route();
  const ids = Object.keys(kept.runs);
  return {
    ...asked,
    kind: "run",
    id: asked.kind === "run" && ids.includes(asked.id) ? asked.id : ids[0],
  };
}

function openKept({ kind, id, part }) {
  const ids = Object.keys(kept.runs);
  keptHead(main);
  let parent = main;
  if (ids.length > 1) {
    const choice = select(
      "Run",
      ids.map((one) => [`/${one}`, labelOf(one)]),
      `/${id}`,
      (value) => {
        location.hash = `#/run/${encodeURIComponent(value.slice(1))}/run`;
      },
    );
    parent = el(
      "section",
      { id: "run", class: "nested", "aria-label": "One run" },
      el("div.controls", choice.node),
    );
    main.append(parent);
  }
  current = { kind, id, ...runPage(parent, id, part) };
  if (part === "run") parent.scrollIntoView();
}

addEventListener("hashchange", open);
document.getElementById("skip").addEventListener("click", () => main.focus());

/** A server that was given one run opens at it; of a folder of runs, at the start page. */
async function begin() {
  if (!kept && !location.hash) {
    const view = await source.start().catch(() => null);
    if (view && isOneRun(view)) history.replaceState(null, "", "#/run/");
  }
  open();
}

begin();
