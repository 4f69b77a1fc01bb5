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

function runPage(parent, id, part) {
  const isSaid = kept !== null && kept.title === labelOf(id);
  const title = el(kept ? "h2" : "h1", { hidden: isSaid }, kept ? labelOf(id) : id || "Run");
  const summary = el("p.summary");
  const recipe = el("p.quietline");
  const bar = progress("Rounds of the run");
  let view = null;
  const keys = () => Object.entries(view?.settings ?? {});
  const settings = folded("Recipe in full", () =>
    scrolled("Recipe in full", tableOf("Every key of the recipe", ["key", "value"], keys())),
  );
  const pair = pairPanel(
    id,
    (author) => look(Math.max(0, namesOf(view).indexOf(author))),
    (name) => authorField(name, view),
  );
  const matrix = matrixSection(pair.open);
  const nodes = nodesSection();
  const sections = [
    answerSection(),
    nodes,
    matrix,
    helpSection(),
    curvesSection(),
    textsSection(id),
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
    "nav.parts",
    { "aria-label": "Parts of this page" },
    ...sections.map(({ id: name, title: text }) =>
      el("a", { href: `#/run/${encodeURIComponent(id)}/${name}` }, text),
    ),
  );
  const head = el("div.runhead", title, summary, bar.node, recipe, settings.node);
  const body = el("div", { hidden: true }, links, ...places.values());
  const wait = el("p.empty", "Loading…");
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
    if (isFirst) showPart(part);
    // A page that is saved or printed has all of its charts.
    if (isFirst && (view.nodes ?? []).length <= MOST_AT_EASE) setTimeout(drawAll, 500);
  }

  function drawHead() {
    const name = kept ? labelOf(id) : view.name;
    write(title, name);
    document.title = `${name} · Potluck`;
    const counts = tally((view.nodes ?? []).map(stateOf));
    const done = Math.max(0, ...(view.nodes ?? []).map((node) => node.round));
    const states = [...counts].map(([state, count]) => `${plain(count)} ${state}`).join(", ");
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
    write(recipe, recipeLine(view));
    settings.node.hidden = !keys().length;
    settings.renew();
  }

  function showPart(name) {
    const place = places.get(name);
    if (!place) return;
    drawAll(); // what is drawn later would push the place away
    place.scrollIntoView();
    place.querySelector("h2").focus({ preventScroll: true });
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
