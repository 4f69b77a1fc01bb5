// The page of a run: its head, and its six parts.

function recipeLine({ method, settings = {} }) {
  const size = Number(settings.group_size);
  const named = (name, value) => value && `${name} ${value}`;
  return [
    named("task", settings["task.name"]),
    named("plan", settings.plan),
    named("method", method),
    size &&
      `${plural(size, "completion")} to each of ${plural(Number(settings.problems_per_round), "problem")} a round`,
    named("seed", settings.seed),
  ]
    .filter(Boolean)
    .join(" · ");
}

function runPage(parent, id, { part, question }) {
  const title = el(kept ? "h2" : "h1", {}, kept ? labelOf(id) : id || "Run");
  const summary = el("p", { class: "summary" });
  const recipe = el("p", { class: "quietline" });
  const bar = progress("Rounds of the run");
  let view = null;
  const settings = folded("Recipe in full", () =>
    scrolled(
      "Recipe in full",
      tableOf(
        "Every key of the recipe",
        ["key", "value"],
        Object.entries(view?.recipe?.settings ?? {}),
      ),
    ),
  );
  const pair = pairPanel(id);
  const openPair = (learner, author) => pair.open(learner, author);
  const texts = textsSection(id);
  const matrix = matrixSection(openPair);
  const nodes = nodesSection();
  const sections = [
    nodes,
    matrix,
    helpSection(),
    curvesSection(id, runsToCompare),
    texts,
    eventsSection(),
  ];
  matrix.node.append(pair.node);
  const places = new Map(
    sections.map((section) => [
      section.id,
      el(
        "section",
        { id: section.id, "aria-labelledby": `${section.id}-title` },
        el("h2", { id: `${section.id}-title`, tabindex: -1 }, section.title),
        section.node,
      ),
    ]),
  );
  const links = el(
    "nav",
    { class: "parts", "aria-label": "Parts of this page" },
    ...sections.map(({ id: name, title: text }) =>
      el("a", { href: `#/run/${encodeURIComponent(id)}/${name}` }, text),
    ),
  );
  const head = el("div", { class: "runhead" }, title, summary, bar.node, recipe, settings.node);
  const body = el("div", { hidden: true }, links, ...places.values());
  const wait = el("p", { class: "empty" }, "Loading…");
  parent.append(head, wait, body);

  function onView(next, changed) {
    const rounds = (which) => Math.max(0, ...(which?.nodes ?? []).map((node) => node.round));
    const isLonger = view !== null && rounds(next) > rounds(view);
    const isFirst = view === null;
    view = next;
    wait.hidden = true;
    body.hidden = false;
    drawHead();
    for (const section of sections)
      if (changed === null || section.needs.some((name) => changed.has(name))) section.update(view);
    if (pair.isOpen() && isLonger) pair.renew();
    if (isFirst) showPart(part, question);
  }

  function drawHead() {
    const name = kept ? labelOf(id) : view.name;
    write(title, name);
    document.title = `${name} · Potluck`;
    const counts = new Map();
    for (const { state } of view.nodes ?? []) counts.set(state, (counts.get(state) ?? 0) + 1);
    const done = Math.max(0, ...(view.nodes ?? []).map((node) => node.round));
    const states = [...counts]
      .map(([state, count]) => `${plain(count)} ${STATES[state] ?? state}`)
      .join(", ");
    const count = (view.nodes ?? []).length;
    write(
      summary,
      [
        view.rounds ? `Round ${plain(done)} of ${plain(view.rounds)}` : plural(done, "round"),
        `${plural(count, "node")}${states ? `: ${states}` : ""}`,
      ].join(" · "),
    );
    bar.node.hidden = !view.rounds;
    bar.set(done / view.rounds);
    write(recipe, view.recipe ? recipeLine(view.recipe) : "");
    settings.node.hidden = !Object.keys(view.recipe?.settings ?? {}).length;
    settings.renew();
  }

  function showPart(name, asked) {
    const place = places.get(name);
    if (!place) return;
    drawAll(); // what is drawn later would push the place away
    place.scrollIntoView();
    place.querySelector("h2").focus({ preventScroll: true });
    if (name === "matrix" && asked.has("learner"))
      openPair(asked.get("learner"), asked.get("author"));
    if (name === "texts" && asked.has("node"))
      texts.open({
        nodeName: asked.get("node"),
        round: asked.has("round") ? Number(asked.get("round")) : null,
        query: asked.get("q") ?? "",
      });
  }

  const timer = setInterval(nodes.tick, 1000);
  const stop = source.watch(id, onView, (state, why) => {
    setLink(state);
    if (state === "refused") write(wait, why);
  });
  return {
    part: showPart,
    end: () => {
      clearInterval(timer);
      stop();
    },
  };
}
