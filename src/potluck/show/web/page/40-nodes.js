// Who is here: a line per node, in red with the reason where something is wrong.

const MOST_AT_EASE = 12;
const TROUBLES = ["silent", "quarantined", "recovering"];
const COLUMNS = ["State", "Round", "Doing", "Heard", "Writing", "Time", "Sent · fetched", "Release"];
const KNOWN = {
  here: "",
  signed: "signed",
  "unknown key": "signed, by a key never met before",
  unsigned: "not signed: anybody may have sent this",
};
const PHASES = {
  write: "writing",
  wait: "waiting for others",
  exchange: "waiting for others",
  learn: "learning",
  evaluate: "being evaluated",
};

/** A bar of where a node's time went, and the share of waiting in words. */
function timeBar() {
  const words = el("span", {});
  const bar = el("span", { class: "times", role: "img" });
  const parts = new Map();
  for (const phase of ["write", "learn", "wait", "exchange"]) {
    parts.set(phase, el("span", { "data-phase": phase }));
    bar.append(parts.get(phase));
  }
  const set = (shares) => {
    bar.hidden = !shares;
    const known = Object.entries(shares ?? {});
    const spelled = known.map(([phase, share]) => `${phase} ${show(share, "share")}`).join(", ");
    bar.setAttribute("aria-label", spelled);
    bar.title = spelled;
    for (const [phase, part] of parts) part.style.flexGrow = shares?.[phase] ?? 0;
    const { wait, exchange } = shares ?? {};
    const told = wait === undefined ? [exchange, "exchange"] : [wait, "waiting"];
    write(words, shares ? `${show(told[0], "share")} ${told[1]}` : UNKNOWN);
  };
  return { node: el("span", {}, words, bar), set };
}

function nodesSection() {
  const rows = new Map();
  const body = el("tbody", { role: "rowgroup" });
  const table = el(
    "table",
    { class: "nodes", role: "table" },
    el("caption", { class: "unseen" }, "Nodes of the run"),
    el(
      "thead",
      { role: "rowgroup" },
      el(
        "tr",
        { role: "row" },
        ...["Node", ...COLUMNS].map((text) => el("th", { scope: "col", role: "columnheader" }, text)),
      ),
    ),
    body,
  );
  const empty = placeholder(
    "No node has told anything yet. Start one with potluck run or potluck join; its line appears here by itself.",
  );
  const phases = ["write", "learn", "wait", "exchange"].map((phase) =>
    el("span", {}, el("span", { class: "swatch", "data-phase": phase }), phase),
  );
  const legend = el("p", { class: "hint timelegend", hidden: true }, "Time: ", ...phases);
  const section = el("div", {}, scrolled("Who is here", table), legend, empty);
  let view = null;
  let heardAt = 0;
  const told = new Map();

  function rowOf(node, index) {
    const parts = {
      name: el("b", {}),
      model: el("small", {}),
      state: el("span", { class: "state" }),
      why: el("small", { class: "why" }),
      round: el("span", {}),
      rounds: progress(`Rounds of ${node.name}`),
      phase: el("span", {}),
      work: progress(`Work of ${node.name} in this phase`),
      heard: el("span", {}),
      rate: el("span", {}),
      time: timeBar(),
      traffic: el("span", {}),
      version: el("span", {}),
      known: el("small", {}),
      refused: el("small", { class: "why" }),
    };
    const cells = [
      [parts.state, parts.why],
      [parts.round, parts.rounds.node],
      [parts.phase, parts.work.node],
      [parts.heard],
      [parts.rate],
      [parts.time.node],
      [parts.traffic, parts.refused],
      [parts.version],
    ];
    const size = { class: "mark", width: 12, height: 12 };
    const mark = svg("svg", { ...size, "aria-hidden": "true" }, dot(look(index), 6, 6, 5));
    parts.line = el(
      "tr",
      { role: "row", "data-node": node.name },
      el(
        "th",
        { scope: "row", role: "rowheader" },
        el("span", { class: "who" }, mark, parts.name),
        parts.model,
        parts.known,
      ),
      ...cells.map((inside, at) =>
        el("td", { role: "cell", "data-label": COLUMNS[at] }, ...inside),
      ),
    );
    return parts;
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
    table.hidden = nodes.length === 0;
    const order = namesOf(view);
    legend.hidden = !nodes.some((node) => timeShares(view, node.name));
    for (const node of nodes) {
      if (!rows.has(node.name)) rows.set(node.name, rowOf(node, order.indexOf(node.name)));
      const parts = rows.get(node.name);
      parts.line.dataset.state = node.state;
      write(parts.name, node.name);
      write(parts.model, [node.model, parameters(node.parameters)].filter(Boolean).join(" · "));
      write(parts.known, KNOWN[node.known] ?? "");
      parts.known.className = node.known === "here" || node.known === "signed" ? "" : "why";
      write(parts.state, STATES[node.state] ?? node.state);
      write(parts.why, node.why ?? "");
      write(
        parts.round,
        view.rounds ? `${plain(node.round)} of ${plain(view.rounds)}` : plain(node.round),
      );
      parts.rounds.node.hidden = !view.rounds;
      parts.rounds.set(node.round / view.rounds);
      const isWorking = node.state === "training" || node.state === "recovering";
      write(
        parts.phase,
        !isWorking ? UNKNOWN : (PHASES[node.phase] ?? node.phase) || "between two phases",
      );
      parts.work.node.hidden = !(isWorking && node.total);
      parts.work.set(node.done / node.total);
      write(parts.rate, show(node.tokens_per_s, "rate"));
      parts.time.set(timeShares(view, node.name));
      write(
        parts.traffic,
        `${show(node.sent_bytes, "bytes")} · ${show(node.received_bytes, "bytes")}`,
      );
      const refused = Object.entries(node.refused ?? {}).map(
        ([why, count]) => `${plain(count)} refused: ${why}`,
      );
      write(parts.refused, refused.join("; "));
      write(parts.version, node.version || UNKNOWN);
      tell(node);
    }
    for (const name of rows.keys())
      if (!nodes.some((node) => node.name === name)) rows.delete(name);
    place(
      body,
      nodes.map((node) => rows.get(node.name).line),
    );
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
    if (!view) return;
    const now_s =
      source.isKept || view.is_over ? view.now_s : view.now_s + (Date.now() - heardAt) / 1000;
    for (const node of view.nodes ?? []) {
      const line = rows.get(node.name);
      if (line) write(line.heard, ago(now_s, node.heard_s));
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
