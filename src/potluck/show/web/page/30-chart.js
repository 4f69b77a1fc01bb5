// A line chart: drawn to the width in pixels, read by pointer, keyboard and table.

const TABLE_ROWS = 60;
const FEW = 4;
const MANY = 12;

const rule = (name, x1, x2, y1, y2) => svg("line", { class: name, x1, x2, y1, y2 });
const dot = ({ colour }, cx, cy, r) => svg("circle", { class: `dot c${colour}`, cx, cy, r });

/** Make a chart. `show(series, kind)` gives it its curves, of a kind of number:
    {key, name, x, y, colour, dash, raw, band: {low, high}, hasDots} each. */
function makeChart({
  title,
  what = "",
  height = 240,
  isSmall = false,
  hasLegend = true,
  level = "h3",
}) {
  let series = [];
  let kind = "number";
  let zoom = null;
  let at = null;
  let drag = null;
  let scales = null;
  const hidden = new Set();
  const describe = svg("desc", {}, what);
  const marks = svg("g", { class: "marks" });
  const help = (text) =>
    `${text}: a chart. Left and right read the values, plus and minus zoom, Escape shows all.`;
  const picture = svg("svg", {
    class: "picture",
    role: "application",
    tabindex: 0,
    height,
    "aria-label": help(title),
  });
  const tip = el("div.tip", { hidden: true });
  const legend = el("div.legend");
  const showAll = () => zoomTo(null);
  const reset = button("Show all rounds", showAll, { class: "quiet reset", hidden: true });
  const heading = el(level, {}, title);
  const table = folded("Table", () => scrolled(`Table: ${title}`, makeTable()));
  const node = el(
    "figure",
    { class: isSmall ? "chart small" : "chart" },
    el("figcaption", heading, reset),
    el("div.canvas", picture, tip),
    legend,
    table.node,
  );
  const redraw = drawnWhenSeen(node, draw);
  new ResizeObserver(redraw).observe(picture);

  const shown = () => series.filter(({ key }) => !hidden.has(key));

  function extent() {
    let low = Infinity;
    let high = -Infinity;
    for (const { x } of series) {
      if (!x.length) continue;
      low = Math.min(low, x[0]);
      high = Math.max(high, x.at(-1));
    }
    return low > high ? null : [low, high === low ? low + 1 : high];
  }

  function heights(kept) {
    let [low, high] = [Infinity, -Infinity];
    for (const { curve, rows, rawRows } of kept) {
      const parts = curve.band
        ? [[curve.band.low, rows], [curve.band.high, rows]]
        : [[curve.y, rows], [curve.raw, rawRows]];
      for (const [values, its] of parts) {
        for (const row of its) {
          if (values[row] === null) continue;
          low = Math.min(low, values[row]);
          high = Math.max(high, values[row]);
        }
      }
    }
    if (low > high) return [0, 1];
    if (kind === "share" && low >= 0) return [0, Math.min(1, Math.max(0.1, high * 1.08))];
    if (low > 0 && low < 0.5 * high) low = 0;
    const margin = (high - low || Math.abs(high) || 1) * 0.06;
    return [low === 0 ? 0 : low - margin, high + margin];
  }

  function draw() {
    const width = Math.max(160, picture.clientWidth || node.clientWidth);
    picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const whole = extent();
    if (!whole) {
      picture.replaceChildren(
        svg("title", {}, title),
        describe,
        svg("text", { x: width / 2, y: height / 2, class: "nothing" }, "nothing was measured"),
      );
      drawLegend();
      return;
    }
    const [from, to] = zoom ?? whole;
    const labelled = !isSmall && width > 560 && shown().length <= 10 && shown().length > 1;
    const longest = labelled
      ? Math.min(140, 7 * Math.max(...shown().map(({ name }) => name.length)) + 20)
      : 8;
    const isFew = shown().length <= FEW;
    const rowsOf = ({ x }, values) => thinned(x, values, from, to, width);
    const kept = shown().map((curve) => ({
      curve,
      rows: rowsOf(curve, curve.y),
      rawRows: rowsOf(curve, (isFew && curve.raw) || []), // it has peaks of its own
    }));
    const [low, high] = heights(kept);
    const levels = ticks(low, high, Math.max(2, Math.floor(height / 45)));
    const left = 14 + 6.6 * Math.max(...levels.map((level) => tickText(level).length));
    const box = { left, right: width - longest, top: 10, bottom: height - 24 };
    const X = (value) => box.left + ((value - from) / (to - from)) * (box.right - box.left);
    const Y = (value) => box.bottom - ((value - low) / (high - low)) * (box.bottom - box.top);
    scales = { from, to, whole, box, X, Y };
    const parts = [svg("title", {}, title), describe];
    const across = (name, y) => rule(name, box.left, box.right, y, y);
    for (const level of levels) {
      parts.push(across("grid", Y(level)));
      parts.push(svg("text", { class: "y", x: box.left - 6, y: Y(level) + 4 }, tickText(level)));
    }
    for (const tick of ticks(from, to, Math.max(2, Math.floor((box.right - box.left) / 80)))) {
      if (Number.isInteger(tick))
        parts.push(svg("text", { class: "x", x: X(tick), y: height - 7 }, plain(tick)));
    }
    parts.push(across("axis", box.bottom));
    const path = (curve, rows, values) =>
      rows
        .filter((row) => values[row] !== null)
        .map(
          (row, place) =>
            `${place ? "L" : "M"}${X(curve.x[row]).toFixed(1)} ${Y(values[row]).toFixed(1)}`,
        )
        .join("");
    for (const { curve, rows, rawRows } of kept) {
      const colour = `c${curve.colour}`;
      if (curve.band)
        parts.push(
          svg("path", {
            class: `band ${colour}`,
            d: `${path(curve, rows, curve.band.high)}L${path(curve, rows.toReversed(), curve.band.low).slice(1)}Z`,
          }),
        );
      if (rawRows.length)
        parts.push(svg("path", { class: `curve raw ${colour}`, d: path(curve, rawRows, curve.raw) }));
      parts.push(
        svg("path", {
          class: `curve ${colour}${kept.length > MANY ? " one-of-many" : ""}`,
          d: path(curve, rows, curve.y),
          "stroke-dasharray": curve.dash || null,
          "data-key": curve.key,
          "data-points": rows.length,
          "data-rows": curve.x.length,
        }),
      );
      if (curve.hasDots || rows.length === 1)
        for (const row of rows) parts.push(dot(curve, X(curve.x[row]), Y(curve.y[row]), 3));
    }
    if (labelled) parts.push(...endNames(kept, X, Y, box));
    picture.replaceChildren(...parts, marks);
    drawLegend();
    drawMarks();
    table.renew();
  }

  const tickText = (level) =>
    kind === "share" || kind === "bytes"
      ? show(level, kind)
      : plain(level)
          .replace(/(\.\d*?)0+$/, "$1")
          .replace(/\.$/, "");

  function endNames(kept, X, Y, box) {
    const ends = kept
      .filter(({ rows }) => rows.length)
      .map(({ curve, rows }) => ({ curve, y: Y(curve.y[rows.at(-1)]) }));
    ends.sort((one, other) => one.y - other.y);
    ends.forEach((end, place) => {
      if (place) end.y = Math.max(end.y, ends[place - 1].y + 14);
    });
    const over = (ends.at(-1)?.y ?? 0) - box.bottom;
    return ends.flatMap(({ curve, y }) => {
      const at = y - Math.max(0, over);
      const mark = rule(`curve c${curve.colour}`, box.right + 4, box.right + 12, at, at);
      const size = { class: "name", x: box.right + 16, y: at + 4 };
      return [mark, svg("text", size, curve.name.slice(0, 18))];
    });
  }

  let legendKey = "";
  function drawLegend() {
    const key = JSON.stringify(
      series.map(({ key: one, name, colour, dash }) => [one, name, colour, dash]),
    );
    legend.hidden = !hasLegend || series.length < 2;
    if (key !== legendKey && hasLegend) {
      legendKey = key;
      const swatch = ({ colour, dash }) =>
        svg(
          "svg",
          { class: "swatch", width: 26, height: 10, "aria-hidden": "true" },
          svg("path", { class: `curve c${colour}`, d: "M0 5H26", "stroke-dasharray": dash || null }),
        );
      const keyOf = (one) => {
        const lifted = () => lift(one.key);
        const down = () => lift(null);
        const on = { pointerenter: lifted, pointerleave: down, focus: lifted, blur: down };
        on.click = () => toggle(one.key);
        const pressed = String(!hidden.has(one.key));
        return el(
          "button",
          { type: "button", class: "key", "aria-pressed": pressed, "data-key": one.key, on },
          swatch(one),
          one.name,
        );
      };
      legend.replaceChildren(...series.map(keyOf));
    }
  }

  function toggle(key) {
    if (!hidden.delete(key)) hidden.add(key);
    for (const button of legend.querySelectorAll("[data-key]"))
      button.setAttribute("aria-pressed", String(!hidden.has(button.dataset.key)));
    redraw();
  }

  /** Show one curve before all others: that whose name is pointed at. */
  function lift(key) {
    picture.classList.toggle("lifting", key !== null);
    for (const path of picture.querySelectorAll("path.curve"))
      path.classList.toggle("lifted", path.dataset.key === key);
  }

  /** Values of the curves at the crosshair, highest first. */
  function readings() {
    return shown()
      .filter(({ x }) => x.length)
      .map((curve) => ({ curve, row: nearestRow(curve.x, at) }))
      .filter(
        ({ curve, row }) =>
          Math.abs(curve.x[row] - at) <= (curve.hasDots ? 0.5 : 1) && curve.y[row] !== null,
      )
      .sort((one, other) => other.curve.y[other.row] - one.curve.y[one.row]);
  }

  function drawMarks() {
    marks.replaceChildren();
    tip.hidden = at === null || drag !== null;
    if (!scales) return;
    const { box, X, Y } = scales;
    if (drag) {
      const [x, end] = [X(Math.min(...drag)), X(Math.max(...drag))];
      const size = { width: end - x, height: box.bottom - box.top };
      marks.append(svg("rect", { class: "selection", x, y: box.top, ...size }));
    }
    if (at === null) return;
    marks.append(rule("cross", X(at), X(at), box.top, box.bottom));
    const found = readings();
    for (const { curve, row } of found.slice(0, 64))
      marks.append(dot(curve, X(curve.x[row]), Y(curve.y[row]), 3.5));
    const lines = found
      .slice(0, 9)
      .map(({ curve, row }) =>
        el(
          "div",
          { class: `reading c${curve.colour}` },
          el("span", curve.name),
          el("b", show(curve.y[row], kind) + rangeAt(curve, row)),
        ),
      );
    const more =
      found.length > 9 ? [el("div.more", `and ${found.length - 9} more`)] : [];
    tip.replaceChildren(el("div.when", `round ${plain(at)}`), ...lines, ...more);
    const isRight = X(at) > (box.left + box.right) / 2;
    tip.style.left = isRight ? "" : `${X(at) + 12}px`;
    tip.style.right = isRight ? `${picture.clientWidth - X(at) + 12}px` : "";
  }

  const rangeAt = ({ band }, row) =>
    band ? ` (${show(band.low[row], kind)} to ${show(band.high[row], kind)})` : "";

  function zoomTo(range) {
    zoom =
      range && range[1] - range[0] >= 1
        ? [Math.max(range[0], extent()[0]), Math.min(range[1], extent()[1])]
        : null;
    reset.hidden = zoom === null;
    if (!zoom && document.activeElement === reset) picture.focus();
    redraw();
  }

  const xAt = (event) => {
    const { box, from, to } = scales;
    const share =
      (event.clientX - picture.getBoundingClientRect().left - box.left) / (box.right - box.left);
    return Math.min(to, Math.max(from, from + share * (to - from)));
  };
  const snapped = (value) => {
    const near = shown().flatMap(({ x }) => (x.length ? [x[nearestRow(x, value)]] : []));
    near.sort((one, other) => Math.abs(one - value) - Math.abs(other - value));
    return near[0] ?? Math.round(value);
  };
  fill(
    picture,
    {
      on: {
        pointerdown: (event) => {
          if (scales && event.button === 0 && event.pointerType !== "touch")
            drag = [xAt(event), xAt(event)];
          if (drag) picture.setPointerCapture(event.pointerId);
        },
        pointermove: (event) => {
          if (!scales) return;
          if (drag) drag[1] = xAt(event);
          at = snapped(xAt(event));
          drawMarks();
        },
        pointerup: (event) => {
          const chosen = drag;
          drag = null;
          if (chosen && Math.abs(scales.X(chosen[0]) - scales.X(chosen[1])) > 8)
            zoomTo(chosen.sort((one, other) => one - other));
          else if (event.pointerType !== "touch") drawMarks();
        },
        pointerleave: () => {
          if (drag) return;
          at = null;
          drawMarks();
        },
        dblclick: () => zoomTo(null),
        blur: () => {
          at = null;
          drawMarks();
        },
        keydown: byKey,
      },
    },
    [],
  );

  function byKey(event) {
    if (!scales || event.ctrlKey || event.metaKey || event.altKey) return;
    const { from, to } = scales;
    const step = Math.max(1, Math.round((to - from) / (event.shiftKey ? 10 : 60)));
    const middle = at ?? to;
    const near = (factor) => [middle - (middle - from) * factor, middle + (to - middle) * factor];
    const moves = { ArrowLeft: -step, ArrowRight: step };
    if (event.key in moves)
      at = Math.min(to, Math.max(from, snapped(middle + (at === null ? 0 : moves[event.key]))));
    else if (event.key === "Home") at = snapped(from);
    else if (event.key === "End") at = snapped(to);
    else if (event.key === "+" || event.key === "=") zoomTo(near(0.5));
    else if (event.key === "-") zoomTo(zoom && near(2));
    else if (event.key === "Escape" || event.key === "0") zoomTo(null);
    else return;
    event.preventDefault();
    drawMarks();
    if (at !== null)
      say(
        `round ${plain(at)}: ${readings()
          .slice(0, 6)
          .map(({ curve, row }) => `${curve.name} ${show(curve.y[row], kind)}`)
          .join(", ")}`,
      );
  }

  function makeTable() {
    const all = [...new Set(series.flatMap(({ x }) => x))].sort((one, other) => one - other);
    const step = Math.max(1, Math.ceil(all.length / TABLE_ROWS));
    const picked = all.filter((_, place) => (all.length - 1 - place) % step === 0);
    const places = series.map(({ x }) => new Map(x.map((value, row) => [value, row])));
    const cell = (curve, row) =>
      row === undefined ? UNKNOWN : show((curve.raw ?? curve.y)[row], kind) + rangeAt(curve, row);
    const caption = step > 1 ? `${title}, every ${step}th round` : title;
    return tableOf(
      caption,
      ["round", ...series.map(({ name }) => name)],
      picked.map((x) => [
        plain(x),
        ...series.map((curve, place) => cell(curve, places[place].get(x))),
      ]),
    );
  }

  return {
    node,
    title: (text, meaning = "") => {
      title = text;
      write(heading, text);
      write(describe, meaning);
      picture.setAttribute("aria-label", help(text));
    },
    show: (next, itsKind) => {
      [series, kind] = [next, itsKind];
      redraw();
    },
  };
}
