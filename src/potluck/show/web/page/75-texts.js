// Completions as one learner saw them: what was written, and what was taken.

const AT_ONCE = 20;
const NOTHING = "No completion is here: those of a round come with its end.";
const NOTHING_OF_IT = "Nothing of this round is in the last 256 MiB of the node's completions.";
const ENDS = { length: "ended by length", turns: "out of turns", room: "out of room" };
const LEVELS = [0.1, 0.5, 1, 2, 4];

/** Class of a token's log-ratio: author minus learner, nats. */
function tokenClass(value) {
  if (value === null) return "token";
  const level = LEVELS.filter((least) => Math.abs(value) >= least).length;
  return level ? `token ${value > 0 ? "more" : "less"}${level}` : "token";
}

const MEASURES_OF_TOKENS = {
  "log-ratio": {
    head: "Log-ratio of a token, author minus learner:",
    blocks: [
      ...[["less4", "−2"], ["less2", "−0.5"], ["", "0"]],
      ...[["more2", "0.5"], ["more4", "2"], ["more5", "4 nats"]],
    ],
    tail: "Blue: its author finds it likelier; orange: the learner does.",
  },
  "ln p": {
    head: "ln p of a token to the learner, as its author told no log-probabilities:",
    blocks: [["", "0"], ["less2", "−0.5"], ["less3", "−1"], ["less4", "−2"], ["less5", "−4 nats"]],
    tail: "Orange: the learner would hardly write it.",
  },
};

function tokenLegend(measure) {
  const { head, blocks, tail } = MEASURES_OF_TOKENS[measure];
  return el(
    "p.legendline",
    head,
    el(
      "span.blocks",
      ...blocks.map(([name, text]) => el("span", { class: `token ${name}` }, text)),
    ),
    tail,
  );
}

const DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";

/** The tokens of a recorded completion, [text, number] each, from the columns of reports/tokens.py. */
function tokensOf({ text = "", lengths = "", numbers = "" }) {
  const letters = [...text];
  const [value, steps] = [(digit) => DIGITS.indexOf(digit), DIGITS.length];
  let at = 0;
  const isTold = numbers.length === 2 * lengths.length; // else they belong to other tokens
  const tokens = [...lengths].map((length, place) => {
    const [high, low] = numbers.slice(2 * place, 2 * place + 2);
    const number = isTold ? (value(high) * steps + value(low) - steps ** 2 / 2 + 1) / 100 : null;
    return [letters.slice(at, (at += value(length))).join(""), number];
  });
  return at === letters.length ? tokens : []; // columns that do not fit each other
}

function outcome({ recorded }) {
  if (!recorded) return ["", ""];
  const { advantage: had, kept: taken, why = "" } = recorded;
  if (taken === 0) return [had === 0 ? "nothing to learn" : "dropped", why];
  return [Math.abs(taken) < Math.abs(had) - 1e-9 ? "kept in part" : "kept", why];
}

/** How a completion did, as the class of a mark and in words: right or wrong where a reward function
    decides that; else above or below its group, of which `mean` is the mean reward. */
function earned({ reward, right }, mean) {
  const amount = `reward ${plain(reward, 2)}`;
  if (typeof right === "boolean") {
    const word = right ? "right" : "wrong";
    return [word, reward === 0 || reward === 1 ? amount : `${word}, ${amount}`];
  }
  if (Math.abs(reward - mean) < 1e-9) return ["", amount];
  const side = reward > mean ? "above" : "below";
  return [side, `${amount}, ${side} its group`];
}

function textLine(text, mean) {
  const [taken, why] = outcome(text);
  const pill = (name, content) => (content ? el("span", { class: `pill ${name}` }, content) : null);
  const { advantage: had, kept, measure: name = "log-ratio" } = text.recorded ?? {};
  const tokens = tokensOf(text.recorded ?? {});
  const advantage =
    text.recorded &&
    `advantage ${plain(had, 2)}${taken === "kept in part" ? ` → ${plain(kept, 2)}` : ""}`;
  const token = ([piece, value]) =>
    el(
      "span",
      {
        class: tokenClass(value),
        title: value === null ? null : `${name} ${plain(value, 2)} nats`,
      },
      piece,
    );
  const asTable = () =>
    scrolled(
      "Tokens",
      tableOf(
        `${name} of each token, nats`,
        ["token", name],
        tokens.map(([piece, value]) => [JSON.stringify(piece), plain(value, 2)]),
      ),
    );
  const end = text.end && text.end !== "stop" ? pill("", ENDS[text.end] ?? text.end) : null;
  return el(
    "li.text",
    text.turns?.length
      ? episode(text, tokens, token)
      : el("pre", ...(tokens.length ? tokens.map(token) : [text.text])),
    el(
      "div.facts",
      pill(...earned(text, mean)),
      el("span.by", `${text.author}, no. ${text.index}`),
      text.turns?.length ? pill("", plural(turnsOf(text), "turn")) : null,
      pill("", advantage),
      pill(taken === "dropped" ? "dropped" : "", taken),
      why ? el("span.why", why) : null,
      end,
      tokens.length ? folded("Tokens", asTable).node : null,
    ),
  );
}

const turnsOf = (text) => text.turns.filter(([role]) => role === "assistant").length;
const unseen = (words) => el("span.unseen", words);

/** An episode in order: what was written, by its tokens where they are recorded, and what was said. */
function episode(text, recorded, token) {
  const turns = text.recorded?.turns ?? [];
  const lengths = turns.length >= turnsOf(text) ? [...turns] : [];
  let at = 0;
  const message = ([role, words]) => {
    if (role !== "assistant") return el("li.heard", unseen(`${role}: `), el("pre", words));
    const length = lengths.shift() ?? 0;
    const tokens = recorded.slice(at, (at += length));
    const isWhole = length > 0 && tokens.length === length;
    return el("li.wrote", unseen("model: "), el("pre", ...(isWhole ? tokens.map(token) : [words])));
  };
  return scrolled("Turns", el("ol.turns", ...text.turns.map(message)));
}

/** The completions to one problem of one round, its prompt above them; `mean` is the mean reward of
    all of them, of which some may not be shown. */
function problemCard(texts, mean) {
  const [{ problem, round }] = texts;
  const question = texts.map((text) => text.question).find(Boolean);
  const answer = texts[0].answer;
  return el(
    "article",
    el("header", el("h3", problem), el("span.by", `round ${round + 1}`)),
    question ? el("p.question", { class: question.includes("\n") ? "drawn" : "" }, question) : null,
    answer ? el("p.answer", "Right answer: ", el("b", answer)) : null,
    el("ol", ...texts.map((text) => textLine(text, mean))),
  );
}

/** Texts by problem and round, both in the order of their first one. */
function byProblem(texts) {
  const groups = new Map();
  for (const text of texts) {
    const key = `${text.round} ${text.problem}`;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(text);
  }
  return [...groups.values()];
}

function textsSection(run) {
  let view = null;
  let answer = null;
  let nodeName = null;
  let round = null;
  let shown = AT_ONCE;
  let newest = -1;
  let asked = 0;
  const nodes = select("Learner", [], "", (value) => {
    newest = -1;
    load(value, null);
  });
  const rounds = select("Round", [], "", (value) =>
    load(nodeName, value === "" ? null : Number(value)),
  );
  const note = el("p.what", { role: "status" });
  const legend = el("div");
  const list = el("div.texts");
  const showMore = () => {
    shown += AT_ONCE;
    draw();
  };
  const more = button("Show more", showMore, { hidden: true });
  const controls = el("div.controls", { hidden: true }, nodes.node, rounds.node);
  const node = el("div", controls, note, legend, list, more);
  // A new round replaces the shown one when that is seen, and where nobody is reading it.
  const renew = drawnWhenSeen(node, () => {
    const done = (view.curves?.[nodeName]?.columns.round ?? []).at(-1) ?? -1;
    if (asked && (round !== null || done <= newest)) return;
    const isRead = node.contains(document.activeElement) || node.matches(":hover");
    if (answer?.texts?.length && (isRead || shown > AT_ONCE)) return;
    newest = done;
    load(nodeName, round);
  });

  async function load(learner, at) {
    [nodeName, round, shown] = [learner, at, AT_ONCE];
    if (nodeName === null) return;
    const now = (asked += 1);
    list.setAttribute("aria-busy", "true");
    try {
      const next = await source.texts(run, nodeName, round);
      if (now !== asked) return;
      answer = next;
      draw();
    } catch (error) {
      if (now === asked) write(note, error.message);
    } finally {
      list.removeAttribute("aria-busy");
    }
  }

  function draw() {
    const texts = byProblem(answer.texts ?? []).flat();
    const known = answer.rounds ?? [];
    nodes.control.value = nodeName;
    controls.hidden = known.length === 0;
    rounds.offer(
      [
        ["", known.length ? `newest (${known.at(-1) + 1})` : "newest"],
        ...known.slice(0, -1).reverse().map((one) => [String(one), String(one + 1)]),
      ],
      round === null || round === known.at(-1) ? "" : String(round),
    );
    const means = byProblem(texts).map((its) => sum(its.map(({ reward }) => reward)) / its.length);
    const cards = byProblem(texts.slice(0, shown)).map((its, at) => problemCard(its, means[at]));
    list.replaceChildren(...cards);
    more.hidden = texts.length <= shown;
    newest = Math.max(newest, known.at(-1) ?? -1);
    const whole = plural(texts.length, "completion");
    const count = answer.is_cut ? `${texts.length} of its completions` : whole;
    const rule = answer.right ? `. ${answer.right[0].toUpperCase()}${answer.right.slice(1)}` : "";
    const found = `Round ${texts[0]?.round + 1}: ${count}; tokens are recorded of a sample${rule}`;
    write(note, texts.length ? found : round === null ? NOTHING : NOTHING_OF_IT);
    const measures = Object.keys(MEASURES_OF_TOKENS).filter((name) =>
      texts.some((text) => text.recorded?.lengths && (text.recorded.measure ?? "log-ratio") === name),
    );
    legend.replaceChildren(...measures.map(tokenLegend));
  }

  function update(next) {
    view = next;
    const names = namesOf(view);
    nodes.offer(names.map((name) => [name, name]));
    if (nodeName === null && names.length) nodeName = names[0];
    nodes.control.value = nodeName ?? "";
    if (nodeName === null) write(note, NOTHING);
    renew();
  }

  return {
    id: "texts",
    title: "Completions",
    needs: ["nodes", "curves"],
    node,
    update,
  };
}
