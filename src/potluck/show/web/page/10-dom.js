// Elements, numbers as text, and when to draw. All text of peers and models becomes text nodes.

const SVG = "http://www.w3.org/2000/svg";

/** Make an element: el("p.what", { title }, child, ...), its classes after its tag. Attributes may
    be left out; `on` holds listeners; true and false set and leave out an attribute. */
function el(tag, ...inside) {
  const [name, ...classes] = tag.split(".");
  const isGiven = Object.getPrototypeOf(inside[0] ?? 0) === Object.prototype;
  const attributes = isGiven ? inside.shift() : {};
  const node = fill(document.createElement(name), attributes, inside);
  node.classList.add(...classes);
  return node;
}

function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    } else if (value !== false && value !== null && value !== undefined) {
      node.setAttribute(name, value === true ? "" : value);
    }
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** Write text only where it changed: a selection or a screen reader's place stays. */
function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Put children into a node where they are others than before. */
function place(node, children) {
  const now = [...node.children];
  if (children.length !== now.length || children.some((child, at) => now[at] !== child))
    node.replaceChildren(...children);
}

function say(text) {
  write(document.getElementById("say"), text);
}

/** A labelled select. `options` are [value, text] or {group, options}; the change goes to `pick`. */
function select(label, options, value, pick) {
  const control = el("select", { on: { change: () => pick(control.value) } });
  const node = el("label.control", el("span", label), control);
  let known = "";
  /** Change the options; a choice that is still there stays. */
  const offer = (offered, chosen) => {
    const key = JSON.stringify(offered);
    if (key !== known) {
      known = key;
      const option = ([value, text]) => el("option", { value }, text);
      control.replaceChildren(
        ...offered.map((entry) =>
          entry.group
            ? el("optgroup", { label: entry.group }, ...entry.options.map(option))
            : option(entry),
        ),
      );
    }
    if (chosen !== undefined) control.value = chosen;
  };
  offer(options, value);
  return { node, control, offer };
}

const MINUS = "\u2212";
const UNKNOWN = "–";

function plain(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return UNKNOWN;
  const size = Math.abs(value);
  let text;
  if (size !== 0 && (size < 0.001 || size >= 1e7)) text = value.toExponential(1);
  else if (Number.isInteger(value))
    text = size >= 10000 ? value.toLocaleString("en") : String(value);
  else text = value.toFixed(Math.max(0, digits - Math.max(0, Math.floor(Math.log10(size || 1)))));
  return withMinus(text);
}

/** A number's text with a sign for people, and none where it is 0 as it is written. */
const withMinus = (text) => text.replace(/^-(?=0(\.0*)?%?$)/, "").replace("-", MINUS);

/** A number with its unit. Kinds: share, nats, bytes, seconds, count, number. */
function show(value, kind = "number") {
  if (value === null || value === undefined || !Number.isFinite(value)) return UNKNOWN;
  if (kind === "share")
    return withMinus(`${(100 * value).toFixed(value !== 0 && Math.abs(value) < 0.0995 ? 1 : 0)}%`);
  if (kind === "nats") return `${plain(value)} nats`;
  if (kind === "bytes") return bytes(value);
  if (kind === "seconds") return `${plain(value, 2)} s`;
  return plain(value);
}

function bytes(value) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) [value, unit] = [value / 1000, unit + 1];
  return `${value < 10 && unit ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

function parameters(count) {
  if (!count) return "";
  if (count >= 1e9) return `${(count / 1e9).toFixed(1)} B parameters`;
  if (count >= 1e6) return `${(count / 1e6).toFixed(count < 1e7 ? 1 : 0)} M parameters`;
  return `${Math.round(count / 1e3)} K parameters`;
}

/** How long ago, in words; `now_s` and `then_s` by the same clock. */
function ago(now_s, then_s) {
  if (then_s === null || then_s === undefined) return UNKNOWN;
  const gone = Math.max(0, now_s - then_s);
  return gone < 2.5 ? "now" : `${lasting(gone)} ago`;
}

function lasting(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 129600
    ? `${Math.round(seconds / 3600)} h`
    : `${Math.round(seconds / 86400)} days`;
}

function clock(time_s) {
  if (time_s === null || time_s === undefined) return "";
  return new Date(1000 * time_s).toLocaleTimeString("en-GB");
}

function plural(count, one, many = `${one}s`) {
  return `${plain(count)} ${count === 1 ? one : many}`;
}

/** How often each value is there. */
function tally(values) {
  const counts = new Map();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  return counts;
}

/** A bar of progress; the numbers beside it say the same in words. */
function progress(label) {
  const inner = el("span.inner");
  const node = el(
    "span",
    {
      class: "progress",
      role: "progressbar",
      "aria-label": label,
      "aria-valuemin": 0,
      "aria-valuemax": 100,
    },
    inner,
  );
  const set = (share) => {
    const percent = Math.round(100 * Math.min(1, Math.max(0, share || 0)));
    node.setAttribute("aria-valuenow", percent);
    inner.style.width = `${percent}%`;
  };
  set(0);
  return { node, set };
}

// What is drawn waits for a frame, and for being seen: 64 nodes cost what is on the screen.

const drawers = new WeakMap();
const waiting = new Set();
const seen = new Set();
const sight = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting && target.isConnected) seen.add(target);
      else seen.delete(target);
    }
    if (waiting.size) requestAnimationFrame(drawSeen);
  },
  { rootMargin: "300px" },
);

/** Return a function that asks for `draw` at the next frame in which `node` is near the screen. It
    takes what is to be drawn; without, that is what it was. */
function drawnWhenSeen(node, draw) {
  let what = null;
  drawers.set(node, () => draw(what));
  sight.observe(node);
  return (next) => {
    what = next ?? what;
    waiting.add(node);
    requestAnimationFrame(drawSeen);
  };
}

function drawSeen() {
  for (const node of [...waiting]) {
    if (!seen.has(node)) continue;
    waiting.delete(node);
    drawers.get(node)();
  }
}

/** Draw all that waits, seen or not: for paper, and before a jump to a part further down. */
function drawAll() {
  while (waiting.size) {
    const nodes = [...waiting];
    waiting.clear();
    for (const node of nodes) drawers.get(node)();
  }
}

addEventListener("beforeprint", drawAll);

/** A table that may be wider than the screen; the keyboard can scroll it. */
function scrolled(label, ...children) {
  return el("div.scroll", { role: "region", "aria-label": label, tabindex: 0 }, ...children);
}

/** A table; the first cell of a row is its heading. Cells are texts or elements. Roles stay where
    a phone shows rows as cards. */
function tableOf(caption, heads, rows, attributes = {}) {
  const cells = ([first, ...rest]) => [
    el("th", { scope: "row", role: "rowheader" }, first),
    ...rest.map((cell, at) => el("td", { role: "cell", "data-label": heads[at + 1] }, cell)),
  ];
  return el(
    "table",
    { role: "table", ...attributes },
    caption ? el("caption", caption) : null,
    el("thead", el("tr", ...heads.map((text) => el("th", { scope: "col" }, text)))),
    el("tbody", { role: "rowgroup" }, ...rows.map((row) => el("tr", { role: "row" }, ...cells(row)))),
  );
}

function button(text, click, attributes = {}) {
  return el("button", { type: "button", on: { click }, ...attributes }, text);
}

/** A command to type elsewhere, with a button that copies it. */
function command(text) {
  const copy = button("Copy", async () => {
    await navigator.clipboard?.writeText(text);
    write(copy, "Copied");
  });
  return el("p.command", el("code", text), copy);
}

/** A paragraph in place of what is not there yet; hidden at first. */
function placeholder(text) {
  return el("p.empty", { hidden: true }, text);
}

/** Details whose content is made when they are opened, and again by `renew` while they are open. */
function folded(summary, make) {
  const body = el("div");
  const node = el("details.folded", el("summary", summary), body);
  const renew = () => {
    if (node.open) body.replaceChildren(make());
  };
  node.addEventListener("toggle", renew);
  return { node, renew };
}
