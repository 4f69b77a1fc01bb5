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
  const runs = el("div.entries");
  const experiments = el("div.entries");
  const title = el("h1", "Runs");
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

/** A card of the start page: its name, its facts and how far it is, unless it has an error. */
function entryCard({ kind, id, name, error, changed_s }, share, facts, rest) {
  const bar = progress(`Progress of ${name}`);
  bar.set(share);
  const href = `#/${kind}/${encodeURIComponent(id)}`;
  const when = changed_s ? el("span.hint", ago(Date.now() / 1000, changed_s)) : null;
  return el(
    "article.entry",
    el("h2", error ? name : el("a", { href }, name || kind)),
    error ? el("p.why", error) : el("p.line", ...facts, when),
    share > -1 && !error ? bar.node : null,
    ...rest,
  );
}

function runEntry(entry) {
  const nodes = entry.nodes ?? [];
  const number = (of, name) => show(of?.[name], entry.is_partial ? "number" : "share");
  const row = (name) => [name, number(entry.reward, name), number(entry.accuracy, name)];
  const rounds = entry.rounds
    ? `round ${plain(entry.done)} of ${plain(entry.rounds)}`
    : plural(entry.done, "round");
  const state = el("span.state", STATES[entry.state] ?? entry.state);
  const card = { ...entry, kind: "run", id: entry.run };
  const made = entryCard(card, entry.done / entry.rounds, [state, rounds], [
    pathOf(entry) ? el("p.hint", pathOf(entry)) : null,
    nodes.length ? tableOf("", ["node", "reward", "validation"], nodes.slice(0, 6).map(row)) : null,
    nodes.length > 6 ? el("p.hint", `and ${nodes.length - 6} more nodes`) : null,
  ]);
  made.dataset.state = entry.state;
  return made;
}

function experimentEntry(entry) {
  const { done, total, running } = entry;
  const cells = (total ? `${plain(done)} of ` : "") + plural(total || done, "cell");
  const words = running?.length ? [el("p.hint", `running: ${running.join(", ")}`)] : [];
  const card = { ...entry, kind: "experiment", id: entry.experiment };
  return entryCard(card, done / total, [cells], words);
}
