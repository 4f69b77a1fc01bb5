// Does it help me? Reward and accuracy of a node, what others are worth to it, and its trust.

const ALL_AT_ONCE = 4;

function helpSection() {
  let view = null;
  let chosen = "";
  const cards = new Map();
  const choice = select("Node", [], chosen, (value) => {
    chosen = value;
    redraw();
  });
  const grid = el("div", { class: "helps" });
  const empty = placeholder(
    "Nothing was learned yet. Rewards come with the first round, accuracies with the first evaluation.",
  );
  const node = el(
    "div",
    {},
    el(
      "p",
      { class: "what" },
      "Own sampled reward: the mean reward of the completions that the node wrote itself.",
    ),
    el("div", { class: "controls", hidden: true }, choice.node),
    empty,
    grid,
  );
  const redraw = drawnWhenSeen(node, draw);

  function draw() {
    const names = namesOf(view);
    const measured = names.filter((name) => view.curves?.[name] || view.evaluations?.[name]);
    empty.hidden = measured.length > 0;
    choice.node.parentNode.hidden = measured.length <= ALL_AT_ONCE;
    if (!measured.includes(chosen)) chosen = measured[0] ?? "";
    choice.offer(
      measured.map((name) => [name, name]),
      chosen,
    );
    const shown = measured.length <= ALL_AT_ONCE ? measured : [chosen];
    for (const name of shown) {
      if (!cards.has(name)) cards.set(name, helpCard(name));
      cards.get(name).draw(view, names.indexOf(name));
    }
    place(
      grid,
      shown.map((name) => cards.get(name).node),
    );
  }

  return {
    id: "help",
    title: "Does it help me?",
    needs: ["curves", "evaluations", "matrix", "habits"],
    node,
    update: (next) => {
      view = next;
      if (next.curves || next.evaluations) redraw();
    },
  };
}

function helpCard(name) {
  const chart = makeChart({
    title: `${name}: own sampled reward and accuracy`,
    what: `Results of ${name} over the rounds`,
    height: 210,
  });
  const others = el("div", { class: "worth" });
  const node = el("div", { class: "help" }, chart.node, others);

  function draw(view, index) {
    const { colour } = look(index);
    const [x, y] = curve(view, name, "own_reward_mean");
    const factor = y.length > 20 ? 0.9 : y.length > 8 ? 0.6 : 0;
    const reward = { key: "reward", name: "own reward", x, y: smoothed(y, factor) };
    const series = [{ ...reward, raw: factor ? y : null, colour, dash: "" }];
    for (const [field, text, dash] of [
      ["validation", "accuracy", DASHES[1]],
      ["out_of_distribution", "out of distr.", DASHES[2]],
    ]) {
      const [at, values] = curve(view, name, field);
      if (values.some((value) => value !== null))
        series.push({ key: field, name: text, x: at, y: values, colour, dash, hasDots: true });
    }
    chart.show(series, { kind: "share" });
    others.replaceChildren(...worths(view, name));
  }

  return { node, draw };
}

/** What the node takes of each other author, its worth where that was measured, and its trust. */
function worths(view, name) {
  const authors = Object.entries(view.matrix?.[name] ?? {})
    .filter(([author]) => author !== name)
    .sort(([one], [other]) => byName(one, other));
  const heading = el("h3", {}, `What others are worth to ${name}`);
  if (!authors.length)
    return [
      heading,
      el("p", { class: "empty" }, `${name} learns from nobody else: it trains alone.`),
    ];
  const isMeasured = authors.some(([, pair]) => (pair.worth ?? null) !== null);
  const rows = authors.map(([author, pair]) => [
    author,
    ...(isMeasured ? [`${plain(pair.worth, 2)} ± ${plain(pair.worth_noise, 2)}`] : []),
    show(pair.success_weight, "share"),
    (pair.gradient_share ?? null) === null
      ? "trusted"
      : `${show(pair.gradient_share, "share")} of gradient`,
  ]);
  const heads = ["author", ...(isMeasured ? ["worth ± noise"] : []), "taken", "trust"];
  const hint = isMeasured
    ? "Worth: what completions of the author add to the node's own gradient, in units of own completions. 0: nothing; 1: as good as own ones."
    : "Worth is not measured while a run goes on; potluck replay measures it afterwards.";
  const table = tableOf("", heads, rows, { class: "worths" });
  return [
    heading,
    scrolled(`What others are worth to ${name}`, table),
    ...(view.habits?.[name] ?? []).map((sentence) => el("p", {}, sentence)),
    el("p", { class: "what" }, hint),
  ];
}
