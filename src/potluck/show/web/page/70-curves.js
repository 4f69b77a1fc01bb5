// Curves of all nodes: any field, smoothed.

/** Curves of a field in a view. */
function curvesOf(view, field) {
  return namesOf(view).flatMap((name, at) => {
    const [x, y] = curve(view, name, field);
    if (!y.some((value) => value !== null)) return [];
    const { colour, dash } = look(at);
    const isGraded = Boolean(view.evaluations?.[name]?.[field]);
    const side = isGraded ? 0 : usualReach(y.length);
    return [
      {
        key: name,
        name,
        x,
        y: smoothed(y, side),
        raw: side ? y : null,
        colour,
        dash,
        hasDots: isGraded && x.length < 40,
      },
    ];
  });
}

function curvesSection() {
  let field = "own_reward_mean";
  const chart = makeChart({ title: "Curves", height: 320 });
  const fields = select("Field", [], field, (value) => {
    field = value;
    redraw();
  });
  const empty = placeholder(
    "No round has ended: the first point of each curve comes with the first report.",
  );
  const hint = el(
    "p.hint",
    "Drag over the picture to zoom, double-click to see all. Click a name to hide its curve.",
  );
  const controls = el("div.controls", fields.node);
  const node = el("div", controls, empty, chart.node, hint);
  const redraw = drawnWhenSeen(node, draw);

  function draw(view) {
    const found = fieldsOf(view);
    empty.hidden = found.length > 0;
    controls.hidden = chart.node.hidden = hint.hidden = found.length === 0;
    if (!found.length) return;
    if (!found.includes(field)) field = found[0];
    fields.offer(grouped(found, view), field);
    const { label, kind } = curveField(field, view);
    chart.title(label, `${label} over the rounds, a curve for each node`);
    chart.show(curvesOf(view, field), kind);
  }

  return { id: "curves", title: "Curves", needs: ["curves", "evaluations"], node, update: redraw };
}
