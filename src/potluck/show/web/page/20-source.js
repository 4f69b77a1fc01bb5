// Where the data comes from: a server that is asked and that tells, or this file itself.

async function ask(path, question = {}) {
  let answer;
  try {
    answer = await fetch(`/api/${path}?${new URLSearchParams(question)}`);
  } catch {
    throw new Error("the server does not answer; is potluck still running?");
  }
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(body.error ?? `the server answered ${answer.status}`);
  return body;
}

/** Add a change to a view: sections that are there replace, curves from their first row on. */
function merged(view, change) {
  const next = { ...view, now_s: change.now_s, is_over: change.is_over ?? false };
  for (const [part, value] of Object.entries(change)) if (value !== null) next[part] = value;
  if (change.curves) {
    next.curves = { ...view.curves };
    for (const [node, rows] of Object.entries(change.curves)) {
      next.curves[node] = { first: 0, columns: appended(view.curves?.[node]?.columns ?? {}, rows) };
    }
  }
  return next;
}

function appended(columns, { first, columns: added }) {
  const count = Math.max(0, ...Object.values(added).map((column) => column.length));
  const result = {};
  for (const name of new Set([...Object.keys(columns), ...Object.keys(added)])) {
    const column = (columns[name] ?? []).slice(0, first);
    while (column.length < first) column.push(null);
    const rows = added[name] ?? [];
    for (let row = 0; row < count; row += 1) column.push(rows[row] ?? null);
    result[name] = column;
  }
  return result;
}

const RETRY_MS = 2000;

const liveSource = {
  isKept: false,
  start: () => ask("start"),
  pair: (run, learner, author) => ask("pair", { run, learner, author }),
  texts: (run, node, round) => ask("texts", round === null ? { run, node } : { run, node, round }),
  experiment: (experiment) => ask("experiment", { experiment }),

  /** Tell `onView` the run now and whenever it changes; `onLink` whether the server is heard.
      Returns the function that ends it. */
  watch(run, onView, onLink) {
    let feed = null;
    let timer = null;
    let view = null;
    const open = () => {
      let isWhole = true;
      feed = new EventSource(`/api/events?run=${encodeURIComponent(run)}`);
      feed.onopen = () => {
        isWhole = true;
      };
      feed.onmessage = ({ data }) => {
        const change = JSON.parse(data);
        const changed = isWhole || view === null ? null : new Set(Object.keys(change));
        view = changed ? merged(view, change) : change;
        isWhole = false;
        onLink(view.is_over ? "over" : "live");
        onView(view, changed);
        if (view.is_over) feed.close();
      };
      feed.onerror = () => {
        onLink("lost");
        // The browser tries again by itself after a lost connection, but not after a refusal.
        if (feed.readyState !== EventSource.CLOSED) return;
        timer = setTimeout(open, RETRY_MS);
        if (view === null) ask("run", { run }).catch((error) => onLink("refused", error.message));
      };
    };
    open();
    return () => {
      clearTimeout(timer);
      feed.close();
    };
  },
};

/** The same of a kept file: everything is in it. */
function keptSource(kept) {
  return {
    isKept: true,
    pair: async (run, learner, author) => {
      const found = (kept.runs[run].pairs ?? []).find(
        (pair) => pair.learner === learner && pair.author === author,
      );
      if (!found) throw new Error("this file does not hold the rounds of this pair");
      return found;
    },
    texts: async (run, node) =>
      (kept.runs[run].texts ?? []).find((view) => view.node === node) ?? { node },
    watch: (run, onView, onLink) => {
      onLink("kept");
      onView(kept.runs[run].view, null);
      return () => {};
    },
  };
}

const keptData = document.getElementById("kept");
const kept = keptData ? JSON.parse(keptData.textContent) : null;
const source = kept ? keptSource(kept) : liveSource;
