// Does it help me? What controls of the run told; of a run without one, how to make one.

const CONTROL = "each model by itself, with the same seed and the same part of the writing";

/** An interval of a difference beside 0; `most` is the end of the scale. */
function whisker([middle, low, high], most) {
  const X = (value) => 60 + (54 * value) / most;
  const size = { class: "whisker", width: 120, height: 14, "aria-hidden": "true" };
  const marks = [rule("axis", 60, 60, 0, 14), rule("curve c0", X(low), X(high), 7, 7)];
  return svg("svg", size, ...marks, dot({ colour: 0 }, X(middle), 7, 3.5));
}

function tableOfAnswers(told, greedy) {
  const both = [greedy, "written"].map((what) => `${what}: together, alone`);
  const heads = ["node", "verdict", "together", "alone", "difference, 95 %", ...both];
  const decimal = (value) => value.toFixed(3).replace("-", MINUS).replace(/^(\D?)0\./, "$1.");
  const signed = (value) => (value < 0 ? decimal(value) : `+${decimal(value)}`);
  const most = Math.max(1e-9, ...told.flatMap(({ answer }) => answer.difference.map(Math.abs)));
  const rows = told.map(({ node, kind, answer, verdict }) => {
    const [middle, ...ends] = answer.difference.map(signed);
    return [
      node,
      el("b", { class: `verdict ${verdict.split(" ")[0]}` }, verdict),
      decimal(answer.together),
      `${decimal(answer.alone)} (${kind})`,
      el("span", whisker(answer.difference, most), ` ${middle} [${ends.join(", ")}]`),
      answer.greedy?.map(decimal).join(", ") ?? UNKNOWN,
      answer.written.map((count) => count.toLocaleString("en")).join(", "),
    ];
  });
  return scrolled("Does it help me?", tableOf("", heads, rows, { class: "answers" }));
}

/** What is told, in elements: the answers, or why there is none yet. */
function answerParts(view) {
  const { controls = [], control_command, nodes, rounds, is_over, settings } = view;
  const said = (text) => el("p.what", text);
  if (nodes?.length === 1) return [said("There is one node: it learns from nobody else.")];
  const told = controls.filter(({ answer }) => answer);
  const rest = controls.filter(({ answer }) => !answer);
  const progress = rest.map(
    ({ node, kind, columns }) => `${node} (${kind}) round ${columns.round.length} of ${rounds}`,
  );
  const state = is_over ? "that were broken off" : "are being made";
  const making = progress.length ? [said(`Controls ${state}: ${progress.join(", ")}.`)] : [];
  if (told.length) {
    const kinds = new Set(told.map(({ kind, how }) => `${kind}: ${how}`));
    const counts = tally(told.map(({ verdict }) => verdict));
    const all = [...counts].map(([verdict, count]) => `${count} ${verdict}`).join(", ");
    const whole = () => tableOfAnswers(told, greedyName(view).toLowerCase());
    const table = told.length > ALL_AT_ONCE ? folded("Each node", whole).node : whole();
    const sizes = told.map(({ answer }) => answer.problems);
    const least = Math.min(...sizes);
    const over = plural(least, "problem") + (Math.max(...sizes) > least ? " or more" : "");
    const how = `Own reward in the second half of the rounds, over ${over}, one seed.`;
    const meaning = `Control ${[...kinds].join("; ")}.`;
    const verdicts = el("p.verdicts", `${plural(told.length, "comparison")}: ${all}.`);
    return [verdicts, table, said(`${how} ${meaning}`), ...making];
  }
  if (making.length) return making;
  if (!is_over && (settings?.control ?? "[]") !== "[]")
    return [said(`Its controls are made when the run is done: ${CONTROL}.`)];
  const tells = `Only a control tells: ${CONTROL}. This run has none.`;
  if (source.isKept || !control_command) return [said(tells)];
  const when = is_over ? "This makes one:" : "When the run is done, this makes one:";
  return [said(`${tells} ${when}`), command(control_command)];
}

function answerSection() {
  const node = el("div");
  let known = "";
  const update = (view) => {
    const key = JSON.stringify([view.controls, view.nodes?.length, view.is_over]);
    if (key !== known) node.replaceChildren(...answerParts(view));
    known = key;
  };
  const needs = ["controls", "nodes", "settings", "is_over"];
  return { id: "answer", title: "Does it help me?", needs, node, update };
}
