// A pair over the rounds: what one learner makes of one author.

/** One learner and one author, who has a look, over the rounds: a small chart for each field. */
function pairPanel(run, lookOf, fieldOf) {
  const node = el("section", {
    class: "pair",
    hidden: true,
    tabindex: -1,
    "aria-label": "A pair over the rounds",
  });
  let pair = null;
  let charts = new Map();
  let asked = 0;
  const title = el("h3");
  const fail = el("p.empty");
  const grid = el("div.charts");
  node.append(
    el("div.pairhead", title, button("Close", close, { class: "quiet" })),
    fail,
    grid,
  );

  function close() {
    node.hidden = true;
    pair = null;
  }

  async function open(learner, author) {
    if (!pair || pair.learner !== learner || pair.author !== author) {
      charts = new Map();
      grid.replaceChildren();
    }
    pair = { learner, author };
    const whom = learner === author ? "its own completions" : author;
    write(title, `What ${learner} learns from ${whom}`);
    node.hidden = false;
    await renew();
    if (pair) node.focus({ preventScroll: true });
    node.scrollIntoView({ block: "nearest" });
  }

  /** Ask again: rounds were added. */
  async function renew() {
    if (!pair) return;
    const now = (asked += 1);
    try {
      const answer = await source.pair(run, pair.learner, pair.author);
      if (now === asked && pair) draw(answer);
    } catch (error) {
      write(fail, error.message);
      fail.hidden = false;
    }
  }

  function draw({ columns }) {
    fail.hidden = true;
    const fields = Object.keys(AUTHOR_FIELDS).filter((key) =>
      columns[key]?.some((value) => value !== null),
    );
    if (!fields.length) {
      write(fail, "Nothing was measured of this pair yet.");
      fail.hidden = false;
    }
    for (const key of fields) {
      const { label, kind, what } = fieldOf(key);
      if (!charts.has(key)) {
        const small = { height: 130, isSmall: true, hasLegend: false, level: "h4" };
        charts.set(key, makeChart({ title: label, what, ...small }));
        grid.append(charts.get(key).node);
      }
      const series = { key, name: label, x: counted(columns.round), y: columns[key] };
      charts.get(key).show([{ ...series, ...lookOf(pair.author) }], kind);
    }
  }

  return { node, open, renew, isOpen: () => pair !== null };
}
