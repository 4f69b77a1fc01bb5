// The statistics: names for people, units, and what they mean, as the server declares them.

const { authors, curves: CURVE_FIELDS } = JSON.parse(
  document.getElementById("statistics").textContent,
);
// Counts say least.
const UNITS = ["share", "nats", "number", "count"];
const AUTHOR_FIELDS = Object.fromEntries(
  Object.entries(authors).sort(
    ([, one], [, other]) => UNITS.indexOf(one.unit) - UNITS.indexOf(other.unit),
  ),
);

/** A number of AuthorReport. `scale` says how a cell is coloured: share: 0..1; around: from below 0
    to above; up: from 0 to the largest. */
function authorField(name, view) {
  const { title, unit, scale, help } = AUTHOR_FIELDS[name];
  const isReward = REWARDS.includes(name) && isPartial(view);
  const own = isReward ? { kind: "number", scale: "around" } : { kind: unit, scale };
  return { label: title, what: help, ...own };
}

/** A curve's field: declared, or the reward of one function of the recipe. */
function curveField(name, view) {
  const reward = { title: `Reward: ${name.replace("rewards/", "")}`, unit: "number", group: "Results" };
  const { title, unit, group } = CURVE_FIELDS[name] ?? reward;
  if (!REWARDS.includes(name) || !isPartial(view)) return { group, label: title, kind: unit };
  return { group, label: title.replace("accuracy", "mean reward"), kind: "number" };
}

/** Fields that are mean rewards. */
const REWARDS = ["reward_mean", "own_reward_mean", "validation", "out_of_distribution"];

/** True: some reward was neither 0 nor 1, so a mean of them is no share of right answers. */
function isPartial({ curves, evaluations } = {}) {
  const rounds = Object.values(curves ?? {}).map(({ columns }) => columns);
  const isOutside = (value) => value !== null && (value < 0 || value > 1);
  return [...rounds, ...Object.values(evaluations ?? {})].some(
    (columns) =>
      columns.partial?.some(Boolean) || REWARDS.some((name) => columns[name]?.some(isOutside)),
  );
}

/** Kind of a mean reward. */
const rewardKind = (view) => (isPartial(view) ? "number" : "share");

const STATES = {
  training: "training",
  recovering: "recovering",
  silent: "silent",
  quarantined: "quarantined",
  ended: "ended",
  stopped: "stopped",
  awaited: "not here yet",
  unknown: "state not known",
};

function stateOf({ state, begins_s }) {
  return begins_s ? "waiting to begin" : (STATES[state] ?? state);
}

// A node has one look on the whole page: colour and dashes repeat together after 45 nodes only.

const DASHES = ["", "7 3", "2 3", "10 3 2 3", "15 4"];

function look(index) {
  return { colour: index % 9, dash: DASHES[index % 5] };
}

function namesOf(view) {
  const names = new Set((view.nodes ?? []).map((node) => node.name));
  for (const part of [view.curves, view.evaluations])
    for (const name in part ?? {}) names.add(name);
  return [...names].sort(byName);
}

function byName(one, other) {
  return one.localeCompare(other, "en", { numeric: true });
}

/** The x and y of a node's field, from its rounds, counted from 1, or its evaluations: so many
    rounds were done before each. */
function curve(view, node, field) {
  const rows = view.curves?.[node];
  if (rows?.columns[field]) return [counted(rows.columns.round), rows.columns[field]];
  const graded = view.evaluations?.[node];
  return graded?.[field] ? [graded.round, graded[field]] : [[], []];
}

const counted = (rounds) => rounds.map((round) => round + 1);
const recent = (values) => (values ?? []).filter((value) => value !== null).slice(-5);
const sum = (values) => values.reduce((all, value) => all + value, 0);

/** Mean reward of a node's last five rounds, and its last greedy one. */
function resultsOf(view, name) {
  const rewards = recent(view.curves?.[name]?.columns.own_reward_mean);
  return [sum(rewards) / rewards.length, recent(view.evaluations?.[name]?.validation).at(-1)];
}

/** Name of the greedy result: a mean of partial rewards is no accuracy. */
function greedyName(view) {
  return isPartial(view) ? "Greedy mean reward" : "Greedy accuracy";
}

/** Time that a node's rounds took, and about what is left at the pace of the last ten. */
function timeOf(view, { name, round, state }) {
  const columns = view.curves?.[name]?.columns ?? {};
  const phases = Object.keys(columns).filter((field) => field.startsWith("seconds/"));
  const seconds = (row) => sum(phases.map((field) => columns[field][row]));
  const times = (columns.round ?? []).map((_, row) => seconds(row));
  const left = ((view.rounds - round) * sum(times.slice(-10))) / Math.min(times.length, 10);
  const goesOn = left > 0 && (state === "training" || state === "recovering");
  const rest = goesOn ? `, about ${lasting(left)} left` : "";
  return phases.length && times.length ? `took ${lasting(sum(times))}${rest}` : "";
}

/** Share of a node's time in which it waited for others; undefined where it told none. */
function waitedShare(view, name) {
  const columns = view.curves?.[name]?.columns ?? {};
  const phases = Object.keys(columns).filter((field) => field.startsWith("seconds/"));
  const wait = columns["seconds/wait"];
  return wait && sum(wait) / sum(phases.flatMap((field) => columns[field]));
}

/** Names of the curves that some node has, in the order of their declaration. */
function fieldsOf(view) {
  const tables = Object.values(view.curves ?? {}).map((rows) => rows.columns);
  // A few nodes stand for all: each has the same fields.
  const some = [...tables.slice(0, 8), ...Object.values(view.evaluations ?? {}).slice(0, 8)];
  const isKnown = (name) => some.some((columns) => columns[name]?.some((value) => value !== null));
  const rewards = some.flatMap(Object.keys).filter((name) => name.startsWith("rewards/"));
  return [...Object.keys(CURVE_FIELDS), ...new Set(rewards)].filter(isKnown);
}

function grouped(names, view) {
  const groups = new Map();
  for (const name of names) {
    const { group, label } = curveField(name, view);
    if (!groups.has(group)) groups.set(group, []);
    groups.get(group).push([name, label]);
  }
  return [...groups].map(([group, options]) => ({ group, options }));
}
