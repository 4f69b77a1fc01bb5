// An experiment: a curve for each setting, from all seeds.

const MEASURES = {
  sampled: ["Own sampled reward", "share"],
  greedy: ["Greedy accuracy", "share"],
  tokens: ["Tokens per completion", "count"],
  seconds: ["Seconds per round", "seconds"],
};

/** A curve per setting: mean over the seeds, and the range from the lowest to the highest. */
function overSeeds(cells, node, measure) {
  const sums = new Map();
  for (const { nodes } of cells) {
    const columns = nodes[node] ?? {};
    const x = measure === "greedy" ? (columns.greedy_round ?? []) : (columns.round ?? []);
    (columns[measure] ?? []).forEach((value, row) => {
      if (value === null || x[row] === null || x[row] === undefined) return;
      if (!sums.has(x[row])) sums.set(x[row], []);
      sums.get(x[row]).push(value);
    });
  }
  const x = [...sums.keys()].sort((one, other) => one - other);
  const of = (reduce) => x.map((at) => reduce(sums.get(at)));
  return {
    x,
    y: of((values) => values.reduce((sum, value) => sum + value, 0) / values.length),
    band: { low: of((values) => Math.min(...values)), high: of((values) => Math.max(...values)) },
  };
}

pages.experiment = (main, id) => {
  const title = el("h1", {}, id);
  const note = el("p", { class: "empty" }, "Loading…");
  main.replaceChildren(title, note);
  let view = null;
  let group = "";
  let measure = "sampled";
  let reach = 0;
  let isOver = false;
  const groups = select("Group", [], "", (value) => {
    group = value;
    draw();
  });
  const measures = select(
    "Measure",
    Object.entries(MEASURES).map(([key, [label]]) => [key, label]),
    measure,
    (value) => {
      measure = value;
      draw();
    },
  );
  const smoothing = select(
    "Smoothing",
    [
      ["0", "none"],
      ["2", "5 rounds"],
      ["7", "15 rounds"],
    ],
    "0",
    (value) => {
      reach = Number(value);
      draw();
    },
  );
  const grid = el("div", { class: "charts wide" });
  let charts = new Map();

  function draw() {
    const found = [...new Set(view.cells.map((cell) => cell.group))];
    if (!found.includes(group)) [group, charts] = [found[0], new Map()];
    groups.offer(
      found.map((one) => [one, one]),
      group,
    );
    const cells = view.cells.filter((cell) => cell.group === group);
    const settings = [...new Set(cells.map((cell) => cell.setting))];
    const nodes = [...new Set(cells.flatMap((cell) => Object.keys(cell.nodes)))].sort(byName);
    const [label, kind] = MEASURES[measure];
    const ease = measure === "greedy" ? 0 : reach;
    for (const node of nodes) {
      if (!charts.has(node)) charts.set(node, makeChart({ title: node, height: 280, level: "h2" }));
      const series = settings.map((setting, index) => {
        const { x, y, band } = overSeeds(
          cells.filter((cell) => cell.setting === setting),
          node,
          measure,
        );
        return {
          key: setting,
          name: setting,
          x,
          y: smoothed(y, ease),
          band: { low: smoothed(band.low, ease), high: smoothed(band.high, ease) },
          ...look(index),
        };
      });
      charts
        .get(node)
        .title(
          `${node}: ${label.toLowerCase()}`,
          `${label} of ${node} over the rounds, a curve for each setting`,
        );
      charts.get(node).show(
        series.filter(({ x }) => x.length),
        kind,
      );
    }
    grid.replaceChildren(...nodes.map((node) => charts.get(node).node));
    const seeds = new Set(cells.map((cell) => cell.seed)).size;
    write(
      note,
      `A curve is the mean over ${plural(seeds, "seed")}; the band goes from the lowest seed to the highest.`,
    );
  }

  source.experiment(id).then(
    (answer) => {
      if (isOver) return;
      view = answer;
      setLink("live");
      write(title, answer.name);
      document.title = `${answer.name} · Potluck`;
      if (!answer.cells.length)
        return write(
          note,
          "No cell is done yet. potluck reproduce fills it; load this page again then.",
        );
      note.className = "what";
      main.replaceChildren(
        title,
        note,
        el("div", { class: "controls" }, groups.node, measures.node, smoothing.node),
        grid,
      );
      draw();
    },
    (error) => write(note, error.message),
  );
  return () => {
    isOver = true;
  };
};
