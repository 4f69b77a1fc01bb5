// The fields of the reports: their names for people, their units, and what they mean.

/** Fields of AuthorReport, for the matrix and a pair. `scale` says how a cell is coloured:
    share: 0..1; around: from below 0 to above; up: from 0 to the largest. */
const AUTHOR_FIELDS = {
  success_weight: [
    "Taken",
    "share",
    "share",
    "Share of the author's right answers that the learner takes, after filter and weights.",
  ],
  effective_sample_size: [
    "Effective sample size",
    "share",
    "share",
    "Of 1 token of the author, how much is left after importance weights. 1: as good as own ones.",
  ],
  filtered_share_negative: [
    "Filtered, of the wrong ones",
    "share",
    "share",
    "Share of the author's wrong answers that the learner does not learn from.",
  ],
  k1: [
    "Distance k1",
    "nats",
    "around",
    "Mean of ln p(author) − ln p(learner) per token. Near 0: the two models write alike.",
  ],
  reward_mean: [
    "Reward",
    "share",
    "share",
    "Mean reward of what the author wrote, graded by the learner.",
  ],
  likelihood_positive: [
    "Likelihood of right answers",
    "share",
    "share",
    "Mean probability per token that the learner gives to the author's right answers.",
  ],
  gradient_share: [
    "Share of the gradient",
    "share",
    "share",
    "Share of a stranger in what moves the learner. Trusted authors have none.",
  ],
  worth: [
    "Worth",
    "number",
    "around",
    "Gain to the learner's own gradient, in units of own completions. 1: as good as own ones, 0: nothing.",
  ],
  staleness: [
    "Rounds since the last message",
    "count",
    "up",
    "0: something came in the newest round.",
  ],
  k3: [
    "Distance k3",
    "nats",
    "up",
    "A second estimate of the distance, never below 0. The default filter looks at it.",
  ],
  log_ratio_mean: [
    "Mean log-ratio",
    "nats",
    "around",
    "Mean of ln p(learner) − ln p(author) per token. Far above 0: claims to doubt.",
  ],
  capped_share: [
    "Weights at the cap",
    "share",
    "share",
    "Share of tokens whose weight is above the cap.",
  ],
  blocked_share: [
    "Blocked successes",
    "share",
    "share",
    "Share of right answers with a token so unlikely to the learner that hardly anything arrives.",
  ],
  completions: ["Completions", "count", "up", "Completions of the author in a round."],
  tokens: ["Tokens", "count", "up", "Tokens of the author's completions in a round."],
  rows_trained: [
    "Completions learned from",
    "count",
    "up",
    "Completions that were neither filtered nor dropped.",
  ],
};

/** Fields of the curves: group, name and unit. Fields that are not here come last, as they are. */
const CURVE_FIELDS = {
  own_reward_mean: ["Results", "Own sampled reward", "share"],
  reward_mean: ["Results", "Sampled reward, all authors", "share"],
  validation: ["Results", "Greedy accuracy, validation", "share"],
  out_of_distribution: ["Results", "Greedy accuracy, out of distribution", "share"],
  own_length_mean: ["Results", "Own completions: tokens", "count"],
  own_cut_share: ["Results", "Own completions: share cut off", "share"],
  loss: ["Training", "Loss", "number"],
  gradient_norm: ["Training", "Gradient norm", "number"],
  entropy: ["Training", "Entropy of own tokens", "nats"],
  kl: ["Training", "KL to the start model", "nats"],
  server_apart: ["Training", "Server's log-probabilities: difference from own", "nats"],
  server_apart_first: ["Training", "The same in the run's first writing", "nats"],
  learning_rate: ["Training", "Learning rate", "number"],
  groups_alike: ["Training", "Share of groups of one reward", "share"],
  rows_trained: ["Training", "Completions learned from", "count"],
  completions: ["Training", "Completions used", "count"],
  filtered_share: ["Training", "Share filtered", "share"],
  updates: ["Training", "Updates", "count"],
  share: ["Training", "Part of the round that it wrote", "share"],
  staleness: ["Training", "Age of others' completions, in their rounds", "number"],
  joint_share: ["Training", "Share of them compared with own", "share"],
  "seconds/write": ["Time", "Seconds of writing", "seconds"],
  "seconds/learn": ["Time", "Seconds of learning", "seconds"],
  "seconds/wait": ["Time", "Seconds of waiting for others", "seconds"],
  "seconds/exchange": ["Time", "Seconds of exchange", "seconds"],
  sent_bytes: ["Network", "Bytes sent", "bytes"],
  sent_bytes_per_token: ["Network", "Bytes sent per token", "number"],
  received_bytes: ["Network", "Bytes fetched", "bytes"],
  missing: ["Network", "Nodes missing", "count"],
  late: ["Network", "Completions late", "count"],
  refused: ["Network", "Messages refused", "count"],
};

const MEASURES = {
  sampled: ["Own sampled reward", "share"],
  greedy: ["Greedy accuracy", "share"],
  tokens: ["Tokens per completion", "count"],
  seconds: ["Seconds per round", "seconds"],
};

function authorField(name) {
  const [label, kind, scale, what] = AUTHOR_FIELDS[name] ?? [words(name), "number", "up", ""];
  return { label, kind, scale, what };
}

function curveField(name) {
  const [group, label, kind] = CURVE_FIELDS[name] ?? [
    "Other",
    words(name),
    name.startsWith("seconds/") ? "seconds" : "number",
  ];
  return { group, label, kind };
}

function words(name) {
  const text = name.replace(/[_/]/g, " ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}

const STATES = {
  training: "training",
  recovering: "recovering",
  silent: "silent",
  quarantined: "quarantined",
  ended: "ended",
  stopped: "stopped",
  unknown: "state not known",
};

// A node has one look on the whole page: colour and dashes repeat together after 35 nodes only.

const DASHES = ["", "7 3", "2 3", "10 3 2 3", "15 4"];

function look(index) {
  return { colour: index % 7, dash: DASHES[index % 5] };
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

/** The x and y of a node's field, from its rounds or its evaluations. */
function curve(view, node, field) {
  const rows = view.curves?.[node];
  if (rows?.columns[field]) return [rows.columns.round, rows.columns[field]];
  const graded = view.evaluations?.[node];
  return graded?.[field] ? [graded.round, graded[field]] : [[], []];
}

/** Share of a node's time in each phase, over all its rounds; null where no round has any.
    Older releases did not tell waiting from exchange: their rounds count where no other is. */
function timeShares(view, node) {
  const columns = view.curves?.[node]?.columns ?? {};
  const told = columns["seconds/wait"]?.map((value) => value !== null);
  const phases = told ? ["write", "learn", "wait", "exchange"] : ["write", "learn", "exchange"];
  const sums = phases.map((phase) => {
    const column = columns[`seconds/${phase}`] ?? [];
    return [phase, column.reduce((sum, value, at) => sum + (!told || told[at] ? value : 0), 0)];
  });
  const all = sums.reduce((sum, [, seconds]) => sum + seconds, 0);
  return all > 0 ? Object.fromEntries(sums.map(([phase, s]) => [phase, s / all])) : null;
}

function fieldsOf(view) {
  const found = new Set();
  const counted = (columns) => {
    for (const [name, column] of Object.entries(columns)) {
      if (name !== "round" && !name.endsWith("problems") && column.some((value) => value !== null))
        found.add(name);
    }
  };
  // A few nodes stand for all: each has the same fields.
  for (const rows of Object.values(view.curves ?? {}).slice(0, 8)) counted(rows.columns);
  for (const columns of Object.values(view.evaluations ?? {}).slice(0, 8)) counted(columns);
  const order = Object.keys(CURVE_FIELDS);
  const place = (name) => (order.includes(name) ? order.indexOf(name) : order.length);
  return [...found].sort((one, other) => place(one) - place(other) || byName(one, other));
}

function grouped(names) {
  const groups = new Map();
  for (const name of names) {
    const { group, label } = curveField(name);
    if (!groups.has(group)) groups.set(group, []);
    groups.get(group).push([name, label]);
  }
  return [...groups].map(([group, options]) => ({ group, options }));
}
