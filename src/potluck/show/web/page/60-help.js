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
  const empty = el(
    "p",
    { class: "empty", hidden: true },
    "Nothing was learned yet. Rewards come with the first round, accuracies with the first evaluation.",
  );
  const node = el(
    "div",
    {},
    el(
      "p",
      { class: "what" },
      "Own sampled reward: the mean reward of the completions that the node wrote itself. Worth: what completions of another author add to the node's own gradient, in units of own completions. 0 is what training alone with the same generation has; 1 is as good as own completions.",
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
    const wanted = shown.map((name) => cards.get(name).node);
    if (
      wanted.length !== grid.children.length ||
      wanted.some((card, place) => grid.children[place] !== card)
    )
      grid.replaceChildren(...wanted);
  }

  return {
    id: "help",
    title: "Does it help me?",
    needs: ["curves", "evaluations", "matrix"],
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
    const series = [
      {
        key: "reward",
        name: "own reward",
        x,
        y: smoothed(y, factor),
        raw: factor ? y : null,
        colour,
        dash: "",
      },
    ];
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

/** The worth of each other author with its noise, as a picture and a table at once. */
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
  const measured = authors.filter(([, pair]) => (pair.worth ?? null) !== null);
  const reach = Math.max(
    1,
    ...measured.map(([, pair]) => Math.abs(pair.worth) + (pair.worth_noise ?? 0)),
  );
  const place = (value) => 50 + (45 * value) / reach;
  const line = ([author, pair]) => {
    const value = pair.worth ?? null;
    const noise = pair.worth_noise ?? 0;
    const drawing = svg(
      "svg",
      {
        class: "whisker",
        viewBox: "0 0 100 14",
        preserveAspectRatio: "none",
        "aria-hidden": "true",
      },
      svg("line", { class: "zero", x1: 50, x2: 50, y1: 0, y2: 14 }),
      svg("line", { class: "one", x1: place(1), x2: place(1), y1: 0, y2: 14 }),
    );
    if (value !== null)
      drawing.append(
        svg("line", {
          class: "range",
          x1: place(value - noise),
          x2: place(value + noise),
          y1: 7,
          y2: 7,
        }),
        svg("line", { class: "value", x1: place(value), x2: place(value), y1: 2, y2: 12 }),
      );
    const trust =
      (pair.gradient_share ?? null) === null
        ? "trusted"
        : `${show(pair.gradient_share, "share")} of gradient`;
    return el(
      "tr",
      {},
      el("th", { scope: "row" }, author),
      el("td", { class: "drawing" }, drawing),
      el("td", {}, value === null ? "not measured" : `${plain(value, 2)} ± ${plain(noise, 2)}`),
      el("td", {}, show(pair.success_weight, "share")),
      el("td", {}, trust),
    );
  };
  const heads = ["author", "0 in the middle, 1 dotted", "worth ± noise", "taken", "trust"];
  const table = el(
    "table",
    { class: "worths" },
    el("thead", {}, el("tr", {}, ...heads.map((text) => el("th", { scope: "col" }, text)))),
    el("tbody", {}, ...authors.map(line)),
  );
  const hint = measured.length
    ? null
    : el(
        "p",
        { class: "what" },
        "Worth is not measured in this run; potluck replay measures it afterwards.",
      );
  return [heading, hint, scrolled(`What others are worth to ${name}`, table)].filter(Boolean);
}
