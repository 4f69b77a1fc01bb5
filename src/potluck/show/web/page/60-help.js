// Reward and accuracy of each node, beside its controls, and what it takes of the others.

const ALL_AT_ONCE = 4;

function helpSection() {
  let chosen = "";
  const cards = new Map();
  const choice = select("Node", [], chosen, (value) => {
    chosen = value;
    redraw();
  });
  const grid = el("div.helps");
  const empty = placeholder(
    "Nothing was learned: rewards come with the first round, accuracies with an evaluation.",
  );
  const hint = el("p.what", "Own sampled reward: mean reward of what the node wrote itself.");
  const controls = el("div.controls", { hidden: true }, choice.node);
  const node = el("div", hint, controls, empty, grid);
  const redraw = drawnWhenSeen(node, draw);

  function draw(view) {
    const names = namesOf(view);
    const columns = (name) => [view.curves?.[name]?.columns, view.evaluations?.[name]];
    const measured = names.filter((name) => columns(name).some((its) => its?.round?.length));
    empty.hidden = measured.length > 0;
    controls.hidden = measured.length <= ALL_AT_ONCE;
    if (!measured.includes(chosen)) chosen = measured[0] ?? "";
    choice.offer(measured.map((name) => [name, name]), chosen);
    const shown = measured.length <= ALL_AT_ONCE ? measured : [chosen];
    for (const name of shown) {
      if (!cards.has(name)) cards.set(name, helpCard(name));
      cards.get(name).draw(view, names.indexOf(name));
    }
    place(grid, shown.map((name) => cards.get(name).node));
  }

  return {
    id: "help",
    title: "Each node",
    needs: ["curves", "evaluations", "matrix", "habits", "controls"],
    node,
    update: redraw,
  };
}

function helpCard(name) {
  const chart = makeChart({ title: name, height: 210 });
  const others = el("div.worth");
  const node = el("div.help", chart.node, others);

  function draw(view, index) {
    const { colour } = look(index);
    const greedy = greedyName(view).toLowerCase();
    chart.title(`${name}: own sampled reward and ${greedy}`, `Results of ${name} over the rounds`);
    const [x, y] = curve(view, name, "own_reward_mean");
    const reach = usualReach(y.length);
    const reward = { key: "reward", name: "own reward", x, y: smoothed(y, reach) };
    const series = [{ ...reward, raw: reach ? y : null, colour, dash: "" }];
    for (const { node: its, kind, columns } of view.controls ?? []) {
      if (its !== name || !columns.round.length) continue;
      const alone = smoothed(columns.own_reward_mean, usualReach(columns.round.length));
      const drawn = { x: counted(columns.round), y: alone, colour: "control", dash: "4 3" };
      series.push({ key: kind, name: kind === "own-part" ? kind : `by itself: ${kind}`, ...drawn });
    }
    for (const [field, text, dash] of [
      ["validation", greedy, DASHES[1]],
      ["out_of_distribution", "out of distr.", DASHES[2]],
    ]) {
      const [at, values] = curve(view, name, field);
      if (values.some((value) => value !== null))
        series.push({ key: field, name: text, x: at, y: values, colour, dash, hasDots: true });
    }
    chart.show(series, rewardKind(view));
    others.replaceChildren(...taken(view, name));
  }

  return { node, draw };
}

/** What the node takes of each other author, and its trust where that is not the same for all. */
function taken(view, name) {
  const authors = Object.entries(view.matrix?.[name] ?? {})
    .filter(([author]) => author !== name)
    .sort(([one], [other]) => byName(one, other));
  const title = `What ${name} takes of others`;
  const said = (text) => [el("h3", title), el("p.empty", text)];
  if (!authors.length) {
    const isOnly = view.nodes?.length === 1;
    return said(isOnly ? "It is the only node: it learns from nobody else." : "Nothing was taken.");
  }
  const isBounded = authors.some(([, pair]) => (pair.gradient_share ?? null) !== null);
  const rows = authors.map(([author, pair]) => [
    author,
    show(pair.success_weight, "share"),
    ...(isBounded ? [show(pair.gradient_share, "share")] : []),
  ]);
  const heads = ["author", "taken", ...(isBounded ? ["of the gradient"] : [])];
  const worth = "What they are worth to it, potluck replay measures from the rounds that were kept.";
  return [
    el("h3", title),
    scrolled(title, tableOf("", heads, rows, { class: "worths" })),
    ...(view.habits?.[name] ?? []).map((sentence) => el("p", sentence)),
    el("p.what", `Taken: the share of the author's successes, the completions better than their groups. ${worth}`),
  ];
}
