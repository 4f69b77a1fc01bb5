// Who is here: a line per node, in red with the reason where something is wrong.

const MOST_AT_EASE = 12;
const TROUBLES = ["silent", "quarantined", "recovering"];
/** Columns, with the parts of their cells. */
const COLUMNS = [
  ["State", "state", "phase", "work", "why"],
  ["Round", "round", "rounds", "left"],
  ["Reward, last 5", "reward", "nothing"],
  ["Greedy accuracy", "accuracy", "constant"],
  ["Heard", "heard"],
  ["Waited", "waited"],
];
const TAGS = {
  ...{ name: "b", reward: "b", accuracy: "b", state: "span.state", why: "small.why" },
  ...{ model: "small", phase: "small", left: "small", nothing: "small", constant: "small" },
};
const PHASES = {
  write: "writing",
  wait: "waiting for others",
  exchange: "waiting for others",
  learn: "learning",
  evaluate: "being evaluated",
};

const FAULTS = {
  cut: "cut off",
  empty: "empty",
  form: "not in the form of an answer",
  wrong: "wrong",
};

/** Why a node's completions of its last round earned nothing, the commonest reason first. */
function nothingOf(view, name) {
  const columns = view.curves?.[name]?.columns ?? {};
  const counts = Object.keys(FAULTS)
    .map((kind) => [kind, columns[`own_earned_nothing/${kind}`]?.at(-1) ?? 0])
    .filter(([, count]) => count > 0)
    .sort(([, one], [, other]) => other - one);
  const words = counts.map(([kind, count]) => `${plain(count)} ${FAULTS[kind]}`);
  return words.length ? `earned 0 in the last round: ${words.join(", ")}` : "";
}

/** What one answer to all of the problems of a greedy evaluation would earn. */
function constantOf(view, name) {
  const earned = recent(view.evaluations?.[name]?.constant).at(-1);
  return earned === undefined ? "" : `a constant: ${show(earned, rewardKind(view))}`;
}

function nodesSection() {
  const rows = new Map();
  const body = el("tbody", { role: "rowgroup" });
  const table = el(
    "table.nodes",
    { role: "table" },
    el("caption.unseen", "Nodes of the run"),
    el(
      "thead",
      { role: "rowgroup" },
      el(
        "tr",
        { role: "row" },
        ...[["Node"], ...COLUMNS].map(([text]) =>
          el("th", { scope: "col", role: "columnheader" }, text),
        ),
      ),
    ),
    body,
  );
  const empty = placeholder(
    "No node has told anything yet. Start one with potluck run or potluck join; its line appears here by itself.",
  );
  const words = "Reward: mean of sampled answers. Greedy: the most likely answer, on problems held out.";
  const meaning = el("p.hint", words);
  const backs = el("div");
  const section = el("div", scrolled("Who is here", table), meaning, backs, empty);
  let view = null;
  let heardAt = 0;
  const told = new Map();

  function rowOf(node, index) {
    const size = { class: "mark", width: 12, height: 12 };
    const mark = svg("svg", { ...size, "aria-hidden": "true" }, dot(look(index), 6, 6, 5));
    const parts = {
      rounds: progress(`Rounds of ${node.name}`),
      work: progress(`Work of ${node.name} in this phase`),
    };
    const part = (name) => (parts[name] ??= el(TAGS[name] ?? "span")).node ?? parts[name];
    parts.line = el(
      "tr",
      { role: "row", "data-node": node.name },
      el(
        "th",
        { scope: "row", role: "rowheader" },
        el("span.who", mark, part("name")),
        part("model"),
      ),
      ...COLUMNS.map(([title, ...names]) =>
        el("td", { role: "cell", "data-label": title }, ...names.map(part)),
      ),
    );
    return parts;
  }

  function wordsOf(node, isWorking) {
    const [reward, accuracy] = resultsOf(view, node.name);
    const doing = isWorking && !node.begins_s;
    const release = node.version && `release ${node.version}`;
    return {
      name: node.name,
      model: [node.model, parameters(node.parameters), release].filter(Boolean).join(" · "),
      state: stateOf(node),
      phase: doing ? (PHASES[node.phase] ?? node.phase) || "between two phases" : "",
      why: node.begins_s ? waitOf(node) : (node.why ?? ""),
      round: plain(node.round) + (view.rounds ? ` of ${plain(view.rounds)}` : ""),
      left: timeOf(view, node),
      reward: show(reward, rewardKind(view)),
      nothing: nothingOf(view, node.name),
      accuracy: show(accuracy, rewardKind(view)),
      constant: constantOf(view, node.name),
      waited: show(waitedShare(view, node.name), "share"),
    };
  }

  const now = () =>
    source.isKept || view.is_over ? view.now_s : view.now_s + (Date.now() - heardAt) / 1000;

  function waitOf({ done, total, begins_s }) {
    const away = view.nodes.filter(({ state }) => state === "awaited").map(({ name }) => name);
    const left = lasting(Math.max(0, begins_s - now()));
    return `waiting for ${away.join(", ") || "others"} (${done} of ${total} here), ${left} left`;
  }

  function update(next) {
    [view, heardAt] = [next, Date.now()];
    const nodes = [...(view.nodes ?? [])].sort((one, other) => byName(one.name, other.name));
    const isMany = nodes.length > MOST_AT_EASE;
    // Among many the ones in trouble come first: nobody reads 64 lines.
    if (isMany)
      nodes.sort((one, other) => TROUBLES.includes(other.state) - TROUBLES.includes(one.state));
    table.classList.toggle("many", isMany);
    empty.hidden = nodes.length > 0;
    table.hidden = meaning.hidden = nodes.length === 0;
    const order = namesOf(view);
    write(table.querySelector("thead th:nth-child(5)"), greedyName(view));
    for (const node of nodes) {
      if (!rows.has(node.name)) rows.set(node.name, rowOf(node, order.indexOf(node.name)));
      const parts = rows.get(node.name);
      const isWorking = node.state === "training" || node.state === "recovering";
      parts.line.dataset.state = node.state;
      parts.line.cells[4].dataset.label = greedyName(view);
      for (const [name, text] of Object.entries(wordsOf(node, isWorking))) write(parts[name], text);
      parts.rounds.node.hidden = !view.rounds;
      parts.rounds.set(node.round / view.rounds);
      parts.work.node.hidden = !(isWorking && node.total);
      parts.work.set(node.done / node.total);
      tell(node);
    }
    for (const name of rows.keys())
      if (!nodes.some((node) => node.name === name)) rows.delete(name);
    place(body, nodes.map((node) => rows.get(node.name).line));
    const gone = nodes.filter(({ back }) => back && !source.isKept);
    const lines = [...new Set(gone.map(({ back }) => back))].map((back) => {
      const names = gone.filter((node) => node.back === back).map(({ name }) => name);
      return el("div", `To bring back ${names.join(", ")}:`, command(back));
    });
    if (lines.map((one) => one.textContent).join("") !== backs.textContent) place(backs, lines);
    tick();
  }

  /** Say aloud when a node's state changes, and nothing else. */
  function tell({ name, state, why }) {
    const before = told.get(name);
    told.set(name, state);
    if (before && before !== state)
      say(`${name} is ${STATES[state] ?? state}${why ? `: ${why}` : ""}`);
  }

  function tick() {
    for (const node of view?.nodes ?? []) {
      const parts = rows.get(node.name);
      const isDated = source.isKept && node.heard_s; // a saved page is read on another day
      const day = isDated && new Date(1000 * node.heard_s).toLocaleString("en-GB");
      if (parts) write(parts.heard, day || ago(now(), node.heard_s));
      if (parts && node.begins_s) write(parts.why, waitOf(node));
    }
  }

  return {
    id: "nodes",
    title: "Who is here",
    needs: ["nodes", "rounds", "curves"],
    node: section,
    update,
    tick,
  };
}
