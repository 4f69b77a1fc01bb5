// What happened, newest first.

const KINDS = "joined left overdue back reset missing late refused unknown quarantined checkpoint message".split(
  " ",
);
const EVENTS_AT_ONCE = 100;

function eventsSection() {
  let view = null;
  let isAll = false;
  const hidden = new Set();
  const chips = el("div", { class: "controls", role: "group", "aria-label": "Kinds of events" });
  const list = el("ol", { class: "events" });
  const empty = placeholder("");
  const showAll = () => {
    isAll = true;
    draw();
  };
  const more = button("Show all", showAll, { hidden: true });
  const node = el("div", {}, chips, empty, list, more);
  const redraw = drawnWhenSeen(node, draw);
  let chipKey = "";

  function draw() {
    const events = view.events ?? [];
    const counts = new Map();
    for (const { kind } of events) counts.set(kind, (counts.get(kind) ?? 0) + 1);
    const kinds = [...counts.keys()].sort(
      (one, other) => KINDS.indexOf(one) - KINDS.indexOf(other),
    );
    if (JSON.stringify([...counts]) !== chipKey) {
      chipKey = JSON.stringify([...counts]);
      const chip = (kind) =>
        el(
          "label",
          { class: "chip" },
          el("input", {
            type: "checkbox",
            value: kind,
            checked: !hidden.has(kind),
            on: {
              change: ({ target }) => {
                if (target.checked) hidden.delete(kind);
                else hidden.add(kind);
                draw();
              },
            },
          }),
          `${kind} ${counts.get(kind)}`,
        );
      const focused = chips.contains(document.activeElement) ? document.activeElement.value : null;
      chips.replaceChildren(...kinds.map(chip));
      if (focused) chips.querySelector(`input[value="${CSS.escape(focused)}"]`)?.focus();
    }
    const shown = events.filter(({ kind }) => !hidden.has(kind)).reverse();
    write(
      empty,
      events.length
        ? "All kinds are hidden: tick one above."
        : "Nothing happened yet: no node was missing, late or refused, and no checkpoint was written.",
    );
    empty.hidden = shown.length > 0;
    more.hidden = isAll || shown.length <= EVENTS_AT_ONCE;
    list.replaceChildren(...shown.slice(0, isAll ? shown.length : EVENTS_AT_ONCE).map(line));
  }

  const line = ({ time_s, round, node: name, kind, text }) =>
    el(
      "li",
      { "data-kind": kind },
      el("span", { class: "time" }, clock(time_s) || UNKNOWN),
      el("span", { class: "round" }, `round ${round}`),
      el("span", { class: "pill" }, kind),
      el("b", {}, name),
      el("span", {}, text),
    );

  return {
    id: "events",
    title: "Events",
    needs: ["events"],
    node,
    update: (next) => {
      view = next;
      redraw();
    },
  };
}
