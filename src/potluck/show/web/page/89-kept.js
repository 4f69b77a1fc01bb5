// What a kept file has at its head; and names of runs.

/** The head of a kept file: the finding, its table, and its runs beside each other. */
function keptHead(parent) {
  const { title, lead = [], table, runs } = kept;
  parent.append(el("h1", title));
  if (lead.length)
    parent.append(el("div.lead", ...lead.map((sentence) => el("p", ...marked(sentence)))));
  if (table) {
    parent.append(
      el(
        "section",
        { "aria-label": table.title },
        scrolled(table.title, tableOf(table.title, table.columns, table.rows)),
        table.note ? el("p.what", table.note) : null,
      ),
    );
  }
  const ids = Object.keys(runs);
  if (ids.length < 2) return;
  const grid = el("div.charts.wide");
  for (const node of [...new Set(ids.flatMap((id) => namesOf(runs[id].view)))].sort(byName)) {
    const series = ids.flatMap((id, index) => {
      const its = curvesOf(runs[id].view, "own_reward_mean");
      const one = its.find(({ key }) => key === node);
      return one ? [{ ...one, key: id, name: labelOf(id), ...look(index) }] : [];
    });
    const chart = makeChart({
      title: `${node}: own sampled reward`,
      what: `Own sampled reward of ${node} over the rounds, a curve for each run`,
      height: 280,
    });
    const isShare = ids.every((id) => !isPartial(runs[id].view));
    chart.show(series, isShare ? "share" : "number");
    grid.append(chart.node);
  }
  parent.append(
    el(
      "section",
      { "aria-labelledby": "beside" },
      el("h2", { id: "beside" }, "The runs beside each other"),
      grid,
    ),
  );
}

/** A sentence whose parts between backquotes are code. */
function marked(sentence) {
  return sentence.split("`").map((part, place) => (place % 2 ? el("code", part) : part));
}

function labelOf(id) {
  return kept.labels?.[id] || kept.runs[id].view.name || id;
}
