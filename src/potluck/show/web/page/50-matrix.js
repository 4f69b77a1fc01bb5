// Who learns what from whom: authors in rows, learners in columns.

const MOST_NUMBERS = 20;
/** Rounds after which a cell is grey. */
const OLD = 10;

/** Colour of a share of the scale, -1..1, on which text can be read. */
function heat(share) {
  const depth = 0.05 + 0.5 * Math.min(1, Math.abs(share));
  return `rgb(var(--${share < 0 ? "orange" : "blue"}) / ${depth.toFixed(3)})`;
}

/** Numbers that tell who helps whom, of which the first that differs between pairs is shown first:
    many methods take nearly all of each author. */
const TELLING = ["success_weight", "gradient_share", "filtered_share_negative", "rows_trained"];
const DIFFERS = 0.1;

function mostTelling(matrix, fields) {
  const pairs = Object.entries(matrix).flatMap(([learner, cells]) =>
    Object.keys(cells).flatMap((author) => (author === learner ? [] : [cells[author]])),
  );
  const differs = (key) => {
    const values = pairs.map((pair) => pair[key] ?? null).filter((one) => one !== null);
    const most = Math.max(...values);
    return values.length && most - Math.min(...values) >= DIFFERS * most && most > 0;
  };
  return TELLING.find(differs) ?? fields.find((key) => TELLING.includes(key)) ?? fields[0];
}

function matrixSection(openPair) {
  let view = null;
  let field = "success_weight";
  let isChosen = false;
  let names = [];
  let cells = new Map();
  let current = [0, 0];
  const choice = select("Show", [], field, (value) => {
    field = value;
    isChosen = true;
    redraw();
  });
  const what = el("p.meaning");
  const grid = el("table", {
    class: "matrix",
    role: "grid",
    "aria-label": "Authors in rows, learners in columns",
  });
  const tip = el("p.reading", { "aria-hidden": "true" });
  const scale = el("div.scale", { "aria-hidden": "true" });
  const empty = placeholder(
    "Nobody has learned from anybody: the first numbers come with the end of the first round.",
  );
  const picture = el(
    "div.heat",
    { hidden: true },
    scrolled("Who learns what from whom", grid),
    el(
      "div.aside",
      choice.node,
      what,
      scale,
      el(
        "p.what",
        "A row is an author, a column a learner: the node that learns from it. Means over the author's last ten rounds; what is learned from own completions has a frame.",
      ),
      tip,
    ),
  );
  const node = el("div", empty, picture);
  const redraw = drawnWhenSeen(node, draw);

  const value = (author, learner) => view.matrix?.[learner]?.[author]?.[field] ?? null;

  function draw(next) {
    view = next;
    const learners = Object.keys(view.matrix ?? {});
    const all = learners.flatMap((learner) => Object.values(view.matrix[learner]));
    const fields = Object.keys(AUTHOR_FIELDS).filter((key) =>
      all.some((pair) => (pair[key] ?? null) !== null),
    );
    empty.hidden = fields.length > 0;
    picture.hidden = fields.length === 0;
    if (!fields.length) return;
    if (!isChosen) field = mostTelling(view.matrix, fields);
    if (!fields.includes(field)) field = fields[0];
    choice.offer(fields.map((key) => [key, authorField(key, view).label]), field);
    const authors = learners.flatMap((learner) => Object.keys(view.matrix[learner]));
    const wanted = [...new Set([...learners, ...authors])].sort(byName);
    if (JSON.stringify(wanted) !== JSON.stringify(names)) build(wanted);
    paint();
  }

  function build(wanted) {
    names = wanted;
    cells = new Map();
    picture.classList.toggle("many", names.length > MOST_NUMBERS);
    picture.classList.toggle("few", names.length <= 4);
    picture.classList.toggle("wide", names.length > 4);
    const row = (author, down) => {
      const line = names.map((learner, across) => {
        const cell = el("td", {
          role: "gridcell",
          tabindex: -1,
          class: author === learner ? "own" : null,
          "data-down": down,
          "data-across": across,
        });
        cells.set(`${down} ${across}`, cell);
        return cell;
      });
      return el(
        "tr",
        { role: "row" },
        el("th", { scope: "row", role: "rowheader", title: author }, author),
        ...line,
      );
    };
    const heads = names.map((learner) =>
      el("th", { scope: "col", role: "columnheader", title: learner }, el("span", learner)),
    );
    grid.replaceChildren(
      el(
        "thead",
        { role: "rowgroup" },
        el("tr", { role: "row" }, el("td.axes", "author ↓ learner →"), ...heads),
      ),
      el("tbody", { role: "rowgroup" }, ...names.map(row)),
    );
    current = [Math.min(current[0], names.length - 1), Math.min(current[1], names.length - 1)];
    cells.get(current.join(" ")).tabIndex = 0;
  }

  function paint() {
    const { label, kind, scale: form, what: meaning } = authorField(field, view);
    write(what, meaning);
    const values = names
      .flatMap((author) => names.map((learner) => value(author, learner)))
      .filter((one) => one !== null);
    const furthest = Math.max(0, ...(view.nodes ?? []).map((node) => node.round));
    const late = (view.nodes ?? []).filter((node) => furthest - node.round > OLD);
    const largest = form === "share" ? 1 : Math.max(1e-9, ...values.map(Math.abs));
    names.forEach((author, down) =>
      names.forEach((learner, across) => {
        const cell = cells.get(`${down} ${across}`);
        const one = value(author, learner);
        const text = one === null ? "" : show(one, kind === "nats" ? "number" : kind);
        const age = late.some(({ name }) => name === learner)
          ? Infinity
          : view.matrix?.[learner]?.[author]?.staleness;
        const when = age > OLD ? `, more than ${OLD} rounds ago` : "";
        cell.classList.toggle("old", age > OLD);
        cell.classList.toggle("none", one === null);
        cell.style.background = one === null ? "" : heat(one / largest);
        write(cell, names.length > MOST_NUMBERS ? "" : text);
        const known = (one === null ? "not known" : show(one, kind)) + when;
        cell.setAttribute("aria-label", `${learner} learns from ${author}: ${label} ${known}`);
      }),
    );
    const least = form === "around" && values.some((one) => one < 0) ? -1 : 0;
    const shares = Array.from({ length: 9 }, (_, at) => least + ((1 - least) * at) / 8);
    const blocks = shares.map((share) => {
      const block = el("span.block");
      block.style.background = heat(share);
      return block;
    });
    scale.replaceChildren(
      show(shares[0] * largest, kind),
      el("span.blocks", ...blocks),
      show(largest, kind),
      el("span.unknown", el("span.block.none"), "not known"),
    );
    write(tip, "A click or Enter on a cell opens the pair over the rounds.");
  }

  const placeOf = (event) => {
    const cell = event.target.closest("td[data-down]");
    return cell && [Number(cell.dataset.down), Number(cell.dataset.across)];
  };
  const readAt = (event) => {
    const place = placeOf(event);
    if (place) write(tip, cells.get(place.join(" ")).getAttribute("aria-label"));
  };
  const focus = (place) => {
    cells.get(current.join(" ")).tabIndex = -1;
    current = place;
    const cell = cells.get(current.join(" "));
    cell.tabIndex = 0;
    cell.focus();
  };
  fill(
    grid,
    {
      on: {
        pointerover: readAt,
        focusin: readAt,
        click: (event) => {
          const place = placeOf(event);
          if (!place) return;
          focus(place);
          openPair(names[place[1]], names[place[0]]);
        },
        keydown: (event) => {
          const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
          const last = names.length - 1;
          const [down, across] = current;
          const inside = (place) => Math.min(last, Math.max(0, place));
          if (event.key in moves)
            focus([inside(down + moves[event.key][0]), inside(across + moves[event.key][1])]);
          else if (event.key === "Home") focus([down, 0]);
          else if (event.key === "End") focus([down, last]);
          else if (event.key === "Enter" || event.key === " ") openPair(names[across], names[down]);
          else return;
          event.preventDefault();
        },
      },
    },
    [],
  );

  return {
    id: "matrix",
    title: "Who learns what from whom",
    needs: ["matrix"],
    node,
    update: redraw,
  };
}
