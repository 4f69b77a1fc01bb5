// Curves of all nodes: any field, smoothed, and beside those of another run.

/** Rounds to each side of a mean; "": as usual for so many rounds. */
const SMOOTHINGS = [["", "usual"], [0, "none"]].concat(
  [[2, "5 rounds"], [5, "11 rounds"], [20, "41 rounds"]],
);

/** Curves of a field in a view; `others` marks those of a run to compare with: dashed and thin. */
function curvesOf(view, field, reach, names, other = "") {
  return namesOf(view).flatMap((name) => {
    const [x, y] = curve(view, name, field);
    if (!y.some((value) => value !== null)) return [];
    const { colour, dash } = look(names.indexOf(name));
    const isGraded = Boolean(view.evaluations?.[name]?.[field]);
    const side = isGraded ? 0 : (reach ?? usualReach(y.length));
    return [
      {
        key: other ? `${other}\n${name}` : name,
        name: other ? `${name}, ${other}` : name,
        x,
        y: smoothed(y, side),
        raw: side && !other ? y : null,
        colour,
        dash: other ? "4 3" : dash,
        isThin: Boolean(other),
        hasDots: isGraded && x.length < 40,
      },
    ];
  });
}

function curvesSection(run, runsToCompare) {
  let field = "own_reward_mean";
  let reach = null;
  let other = null;
  let otherName = "";
  const chart = makeChart({ title: "Curves", height: 320 });
  const fields = select("Field", [], field, (value) => {
    field = value;
    redraw();
  });
  const smoothing = select("Smoothing", SMOOTHINGS, "", (value) => {
    reach = value === "" ? null : Number(value);
    redraw();
  });
  const compare = select("Compare with", [["", "no other run"]], "", async (id) => {
    other = null;
    write(fail, "");
    try {
      otherName = compare.control.selectedOptions[0].textContent;
      if (id) other = await source.run(id.slice(1));
    } catch (error) {
      write(fail, error.message);
    }
    redraw();
  });
  const fail = el("p.what");
  const empty = placeholder(
    "No round has ended: the first point of each curve comes with the first report.",
  );
  const hint = el(
    "p.hint",
    "Drag over the picture to zoom, double-click to see all. Click a name to hide its curve.",
  );
  const controls = el("div.controls", fields.node, smoothing.node, compare.node);
  const node = el("div", controls, fail, empty, chart.node, hint);
  const redraw = drawnWhenSeen(node, draw);
  compare.node.hidden = true;
  runsToCompare().then(
    (runs) => {
      const rest = runs.filter(([id]) => id !== run);
      compare.node.hidden = rest.length === 0;
      // An id may be empty: the slash before it tells it from "no other run".
      compare.offer([["", "no other run"], ...rest.map(([id, name]) => [`/${id}`, name])], "");
    },
    () => {},
  );

  function draw(view) {
    const found = fieldsOf(view);
    empty.hidden = found.length > 0;
    controls.hidden = chart.node.hidden = hint.hidden = found.length === 0;
    if (!found.length) return;
    if (!found.includes(field)) field = found[0];
    fields.offer(grouped(found), field);
    const { label, kind } = curveField(field);
    const names = [...new Set([...namesOf(view), ...(other ? namesOf(other) : [])])];
    let series = curvesOf(view, field, reach, names);
    if (other)
      series = [
        ...series.map((one) => ({ ...one, dash: "" })),
        ...curvesOf(other, field, reach, names, otherName),
      ];
    chart.title(label, `${label} over the rounds, a curve for each node`);
    chart.show(series, kind);
  }

  return { id: "curves", title: "Curves", needs: ["curves", "evaluations"], node, update: redraw };
}
