// The start page: runs and experiments of a folder.

const AGAIN_MS = 5000;

/** Pages that other distributions add, by the first word of their addresses. */
const pages = {};

/** Where a run lies, if its name does not tell. */
function pathOf({ run, name }) {
  return run.split("/").at(-1) === name ? "" : run;
}

/** True where the server was given one run and no folder of runs. */
function isOneRun({ runs = [], experiments = [] }) {
  return runs.length === 1 && runs[0].run === "" && !experiments.length;
}

function startPage(main) {
  const runs = el("div", { class: "entries" });
  const experiments = el("div", { class: "entries" });
  const title = el("h1", {}, "Runs");
  const note = placeholder("");
  const experimentsPart = el(
    "section",
    { "aria-labelledby": "experiments-title", hidden: true },
    el("h2", { id: "experiments-title" }, "Experiments"),
    experiments,
  );
  main.replaceChildren(title, note, runs, experimentsPart);
  let known = "";
  let timer = null;
  let isOver = false;

  async function load() {
    try {
      const view = await source.start();
      setLink("live");
      if (!isOver && JSON.stringify(view) !== known) draw(view);
    } catch (error) {
      setLink("lost");
      if (!known) [note.textContent, note.hidden] = [error.message, false];
    }
    if (!isOver) timer = setTimeout(load, AGAIN_MS);
  }

  function draw(view) {
    known = JSON.stringify(view);
    if (!location.hash && isOneRun(view)) return location.replace("#/run/"); // it has begun by now
    document.title = `${view.place} · Potluck`;
    write(title, `Runs in ${view.place}`);
    const [entries, cells] = [view.runs ?? [], view.experiments ?? []];
    const focused = document.activeElement?.getAttribute?.("href");
    runs.replaceChildren(...entries.map(runEntry));
    experiments.replaceChildren(...cells.map(experimentEntry));
    if (focused) main.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
    experimentsPart.hidden = cells.length === 0;
    note.hidden = entries.length + cells.length > 0 && !view.is_cut;
    write(
      note,
      entries.length + cells.length
        ? "There are more runs than are shown here: watch a folder further down."
        : "No run here yet. Start one: potluck new my-run.toml, then potluck run my-run.toml. It appears here by itself.",
    );
  }

  load();
  return () => {
    isOver = true;
    clearTimeout(timer);
  };
}

function runEntry(entry) {
  const bar = progress(`Rounds of ${entry.name}`);
  bar.set(entry.done / entry.rounds);
  const nodes = entry.nodes ?? [];
  const rows = nodes
    .slice(0, 6)
    .map((name) => [
      name,
      show(entry.reward?.[name], "share"),
      show(entry.accuracy?.[name], "share"),
    ]);
  return el(
    "article",
    { class: "entry", "data-state": entry.state },
    el(
      "h2",
      {},
      entry.error
        ? entry.name
        : el("a", { href: `#/run/${encodeURIComponent(entry.run)}` }, entry.name || "run"),
    ),
    pathOf(entry) ? el("p", { class: "hint" }, pathOf(entry)) : null,
    entry.error ? el("p", { class: "why" }, entry.error) : null,
    entry.error
      ? null
      : el(
          "p",
          { class: "line" },
          el("span", { class: "state" }, STATES[entry.state] ?? entry.state),
          entry.rounds
            ? `round ${plain(entry.done)} of ${plain(entry.rounds)}`
            : plural(entry.done, "round"),
          entry.changed_s
            ? el("span", { class: "hint" }, ago(Date.now() / 1000, entry.changed_s))
            : null,
        ),
    entry.rounds && !entry.error ? bar.node : null,
    nodes.length ? tableOf("", ["node", "reward", "accuracy"], rows) : null,
    nodes.length > 6 ? el("p", { class: "hint" }, `and ${nodes.length - 6} more nodes`) : null,
  );
}

function experimentEntry(entry) {
  const bar = progress(`Cells of ${entry.name}`);
  bar.set(entry.done / entry.total);
  return el(
    "article",
    { class: "entry" },
    el(
      "h3",
      {},
      el("a", { href: `#/experiment/${encodeURIComponent(entry.experiment)}` }, entry.name),
    ),
    el(
      "p",
      { class: "line" },
      entry.total
        ? `${plain(entry.done)} of ${plural(entry.total, "cell")}`
        : plural(entry.done, "cell"),
      entry.changed_s
        ? el("span", { class: "hint" }, ago(Date.now() / 1000, entry.changed_s))
        : null,
    ),
    entry.total ? bar.node : null,
    entry.running?.length
      ? el("p", { class: "hint" }, `running: ${entry.running.join(", ")}`)
      : null,
  );
}
