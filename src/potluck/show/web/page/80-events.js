// What happened, newest first.

const KINDS = "alert joined left overdue back reset refused unknown quarantined checkpoint message".split(
  " ",
);
const EVENTS_AT_ONCE = 100;

function eventsSection() {
  let isAll = false;
  const hidden = new Set(["checkpoint"]);
  const chips = el("div.controls", { role: "group", "aria-label": "Kinds of events" });
  const list = el("ol.events");
  const empty = placeholder("");
  const showAll = () => {
    isAll = true;
    redraw();
  };
  const more = button("Show all", showAll, { hidden: true });
  const node = el("div", chips, empty, list, more);
  const redraw = drawnWhenSeen(node, draw);
  const made = new Map();
  const chip = (kind) => {
    const change = ({ target }) => {
      if (target.checked) hidden.delete(kind);
      else hidden.add(kind);
      redraw();
    };
    const box = { type: "checkbox", value: kind, checked: !hidden.has(kind), on: { change } };
    return el("label.chip", el("input", box), el("span"));
  };

  function draw(view) {
    const events = view.events ?? [];
    const counts = tally(events.map(({ kind }) => kind));
    const kinds = [...counts.keys()].sort(
      (one, other) => KINDS.indexOf(one) - KINDS.indexOf(other),
    );
    for (const kind of kinds) if (!made.has(kind)) made.set(kind, chip(kind));
    for (const kind of kinds) write(made.get(kind).lastChild, `${kind} ${counts.get(kind)}`);
    place(chips, kinds.map((kind) => made.get(kind)));
    const shown = events.filter(({ kind }) => !hidden.has(kind)).reverse();
    write(
      empty,
      events.length
        ? "Nothing else happened: tick a kind above to see it."
        : "Nothing to tell: no node came, left, was late or refused, and no checkpoint was written.",
    );
    empty.hidden = shown.length > 0;
    more.hidden = isAll || shown.length <= EVENTS_AT_ONCE;
    list.replaceChildren(...shown.slice(0, isAll ? shown.length : EVENTS_AT_ONCE).map(line));
  }

  const line = ({ time_s, round, node: name, kind, text }) =>
    el(
      "li",
      { "data-kind": kind },
      el("span.time", clock(time_s) || UNKNOWN),
      el("span.round", `round ${round + 1}`),
      el("span.pill", kind),
      el("b", name),
      el("span", text),
    );

  return { id: "events", title: "Events", needs: ["events"], node, update: redraw };
}
