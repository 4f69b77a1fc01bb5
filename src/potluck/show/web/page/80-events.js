// What happened, newest first; checkpoints are in events.jsonl alone, as each run writes many.

const EVENTS_AT_ONCE = 100;

function eventsSection() {
  let isAll = false;
  const list = el("ol.events");
  const empty = placeholder(
    "Nothing to tell: no node came, left, was late or refused.",
  );
  const showAll = () => {
    isAll = true;
    redraw();
  };
  const more = button("Show all", showAll, { hidden: true });
  const node = el("div", empty, list, more);
  const redraw = drawnWhenSeen(node, draw);

  function draw({ events }) {
    const newest = (events ?? []).filter(({ kind }) => kind !== "checkpoint").reverse();
    empty.hidden = newest.length > 0;
    more.hidden = isAll || newest.length <= EVENTS_AT_ONCE;
    list.replaceChildren(...newest.slice(0, isAll ? undefined : EVENTS_AT_ONCE).map(line));
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
