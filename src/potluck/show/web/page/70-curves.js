// Curves of all nodes: any field, smoothed, and beside those of another run.

const EVALUATED = new Set(["validation", "out_of_distribution"]);

/** Curves of a field in a view; `others` marks those of a run to compare with: dashed and thin. */
function curvesOf(view, field, factor, names, other = "") {
  return namesOf(view).flatMap((name) => {
    const [x, y] = curve(view, name, field);
    if (!y.some((value) => value !== null)) return [];
    const { colour, dash } = look(names.indexOf(name));
    const isRaw = factor > 0 && !other && !EVALUATED.has(field);
    return [
      {
        key: other ? `${other}\n${name}` : name,
        name: other ? `${name}, ${other}` : name,
        x,
        y: EVALUATED.has(field) ? y : smoothed(y, factor),
        raw: isRaw ? y : null,
        colour,
        dash: other ? "4 3" : dash,
        isThin: Boolean(other),
        hasDots: EVALUATED.has(field) && x.length < 40,
      },
    ];
  });
}

function curvesSection(run, runsToCompare) {
  let view = null;
  let field = "own_reward_mean";
  let factor = 0;
  let other = null;
  let otherName = "";
  const chart = makeChart({ title: "Curves", height: 320 });
  const fields = select("Field", [], field, (value) => {
    field = value;
    redraw();
  });
  const amount = el("output", {}, "none");
  const slider = el("input", {
    type: "range",
    min: 0,
    max: 0.95,
    step: 0.05,
    value: 0,
    on: {
      input: () => {
        factor = Number(slider.value);
        write(amount, factor ? factor.toFixed(2) : "none");
        redraw();
      },
    },
  });
  const compare = select("Compare with", [["", "no other run"]], "", async (id) => {
    other = null;
    write(fail, "");
    try {
      if (id)
        [other, otherName] = [
          await source.run(id.slice(1)),
          compare.control.selectedOptions[0].textContent,
        ];
    } catch (error) {
      write(fail, error.message);
    }
    redraw();
  });
  const fail = el("p", { class: "what" });
  const empty = placeholder(
    "No round has ended yet: the first point of each curve comes with the first report.",
  );
  const hint = el(
    "p",
    { class: "hint" },
    "Drag over the picture to zoom, double-click to see all. Click a name to hide its curve.",
  );
  const controls = el(
    "div",
    { class: "controls" },
    fields.node,
    el(
      "label",
      { class: "control" },
      el("span", {}, "Smoothing"),
      el("span", { class: "slider" }, slider, amount),
    ),
    compare.node,
  );
  const node = el("div", {}, controls, fail, empty, chart.node, hint);
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

  function draw() {
    const found = fieldsOf(view);
    empty.hidden = found.length > 0;
    controls.hidden = chart.node.hidden = hint.hidden = found.length === 0;
    if (!found.length) return;
    if (!found.includes(field)) field = found[0];
    fields.offer(grouped(found), field);
    const { label, kind } = curveField(field);
    const names = [...new Set([...namesOf(view), ...(other ? namesOf(other) : [])])];
    let series = curvesOf(view, field, factor, names);
    if (other)
      series = [
        ...series.map((one) => ({ ...one, dash: "" })),
        ...curvesOf(other, field, factor, names, otherName),
      ];
    chart.title(label, `${label} over the rounds, a curve for each node`);
    chart.show(series, { kind });
  }

  return {
    id: "curves",
    title: "Curves",
    needs: ["curves", "evaluations"],
    node,
    update: (next) => {
      view = next;
      redraw();
    },
  };
}
