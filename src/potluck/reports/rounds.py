"""Reports on rounds and evaluations: the lines of metrics.jsonl and evaluation.jsonl.

Nodes write them; displays, trackers and ``potluck show`` read them. The order of the fields is
that of the keys in the files. A field that an older run has not written gets its default when it
is read. Shares are 0..1, times seconds, sizes bytes. Every number is one node's own view.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from potluck.reports.statistics import EARNED_NOTHING, PHASES, Number, Stat

BLOCKING_WEIGHT = 0.2
"""Weight of a token below which it blocks its completion: what it would teach hardly arrives."""


@dataclass(frozen=True, slots=True)
class RewardReport:
    """The numbers of one reward function on the completions that this node wrote in a round."""

    mean: Number = None
    """Mean, before the function's weight."""
    std: Number = None
    """Sample standard deviation; None of fewer than two."""
    binary: bool | None = None
    """True: all its numbers of the round, for completions of any author, were 0 or 1; null in runs
    of 0.2.0. See ``[evaluation] right``."""


@dataclass(frozen=True, slots=True)
class AuthorReport:
    """One author's completions of one round, as one learner saw them.

    The log-ratio is ln pi_start - ln pi_gen of a token, nats: how much likelier it is to the
    learner than it was to its author. Its exponential is the uncapped importance weight w.
    """

    completions: Annotated[
        int, Stat("Completions", "count"), "Completions of the author in the round that were used."
    ] = 0
    tokens: Annotated[
        int,
        Stat("Tokens", "count"),
        "Tokens of all its completions, those without an advantage too.",
    ] = 0
    reward_mean: Annotated[
        Number,
        Stat("Reward", "share", row="reward", format="z.3f"),
        "Mean reward of its completions, graded by the learner.",
    ] = None
    with_advantage: int = 0
    """Completions that differ in reward from their group; the fields below are about these."""
    rows_trained: Annotated[
        int,
        Stat("Completions learned from", "count"),
        "Completions with an advantage that were neither filtered nor dropped.",
    ] = 0
    log_ratio_mean: Annotated[
        Number,
        Stat("Mean log-ratio", "nats", signed=True, row="ln ratio", format="z.3f"),
        "Mean of ln p(learner) - ln p(author) per token. Far above 0: claims to doubt.",
    ] = None
    k1: Annotated[
        Number,
        Stat("Distance k1", "nats", signed=True),
        "Mean over completions of ln p(author) - ln p(learner) per token. 0: both write alike.",
    ] = None
    k3: Annotated[
        Number,
        Stat("Distance k3", "nats"),
        "The same of e^d - d - 1, where k1 has d: never below 0. The default filter looks at it.",
    ] = None
    capped_share: Annotated[
        Number,
        Stat("Weights at the cap", "share"),
        "Share of tokens with w > C, measured under every method. Only TIS caps them.",
    ] = None
    filtered_share_negative: Annotated[
        Number,
        Stat("Filtered, of the failures", "share", row="filtered", format="z.0%"),
        "Share of its failures that the learner does not learn from: filtered or not read.",
    ] = None
    effective_sample_size: Annotated[
        Number,
        Stat("Effective sample size", "share", row="ESS", format="z.2f"),
        "Effective sample size of a token, (sum w)^2 / (n sum w^2) over n. 1: all weigh the same.",
    ] = None
    k1_positive: Number = None
    """k1 over its completions of positive advantage (successes) alone."""
    likelihood_positive: Annotated[
        Number,
        Stat("Likelihood of successes", "share", row="P", format="z.3f"),
        "Mean over its successes of P, the geometric mean of p(learner) over their tokens.",
    ] = None
    bits_per_byte: Annotated[Number, Stat(row="bits/byte", format="z.2f")] = None
    """Surprise of its texts here, -log2 p over the bytes of UTF-8. Tokenizers that cut text into
    more or fewer tokens do not change what it means, so it can be compared between nodes."""
    success_weight: Annotated[
        Number,
        Stat("Taken", "share", row="taken", format="z.0%"),
        "Share of its successes that the learner takes, after filter and weights.",
    ] = None
    silenced_share: Annotated[
        Number,
        Stat("Silenced by the habit test", "share", row="habit", format="z.0%"),
        "Share of its successes that are not learned from, as they bear its habit.",
    ] = None
    tested_habit: str | None = None
    """Phrase of its habit that is most foreign to this node: see ``objective/habit.py``."""
    habit_gain: Number = None
    """Reward of this node's answers that bear the habit less that of its others to the same
    problems. None: its answers do not differ in it, and nothing is silenced."""
    habit_gain_error: Number = None
    """Standard error of ``habit_gain``."""
    blocked_share: Annotated[
        Number,
        Stat("Blocked successes", "share"),
        "Share of its successes that have a token with w (or p) below 0.2: hardly any arrives. "
        "It means nothing in language, where nearly every success has one (0.96 to 1.00).",
    ] = None
    gradient_share: Annotated[
        Number,
        Stat("Share of the gradient", "share"),
        "Share of a stranger in what moves the learner; all strangers together have half at most.",
    ] = None
    turns_mean: Annotated[
        Number,
        Stat("Turns an episode", "count", "Episodes", row="turns", format="z.1f"),
        "Mean number of turns of its episodes.",
    ] = None
    calls_mean: Annotated[
        Number,
        Stat("Tool calls an episode", "count", "Episodes", row="calls", format="z.1f"),
        "Mean number of tool calls of its episodes.",
    ] = None
    call_error_share: Annotated[
        Number,
        Stat("Tool calls that failed", "share", "Episodes", row="failed", format="z.0%"),
        "Share of these calls that raised an error, or named no tool.",
    ] = None
    cut_share: Annotated[
        Number,
        Stat("Episodes cut off", "share", "Episodes", row="cut", format="z.0%"),
        "Share of its episodes that ran out of turns or of tokens before they were over.",
    ] = None
    replay_refused_share: Annotated[
        Number,
        Stat("Refused by replay", "share", "Episodes", row="refused", format="z.0%"),
        "Share of its episodes that did not go here as it said. Far above 0: a liar, or an "
        "environment that does not repeat.",
    ] = None


@dataclass(frozen=True, slots=True)
class RoundReport:
    """Results of one round: a line of metrics.jsonl."""

    round: int
    """Number of the round, from 0."""
    reward_mean: Annotated[Number, Stat("Sampled reward, all authors", "share", "Results")] = None
    """Mean over the completions of all nodes that were used; None if there are none."""
    own_reward_mean: Annotated[Number, Stat("Own sampled reward", "share", "Results")] = None
    """Mean over the completions that this node wrote."""
    rewards: Mapping[str, RewardReport] = field(default_factory=dict)
    """Each reward function by its name, before its weight; "task": the task's own grading."""
    partial: bool | None = None
    """True: some reward of the round was neither 0 nor 1, so a mean reward is no share of right
    answers; null in runs of 0.2.0."""
    own_length_mean: Annotated[Number, Stat("Tokens an answer", "count", "Results", ".0f")] = None
    """Mean length of the completions that this node wrote, tokens."""
    own_cut_share: Annotated[Number, Stat("Answers cut off", "share", "Results", "z.0%")] = None
    """Share of them that were cut off: no stop token came, or an episode ran out of turns."""
    own_earned_nothing: Annotated[
        Mapping[str, int], Stat("Earned nothing", "count", "Results", parts=EARNED_NOTHING)
    ] = field(default_factory=dict)
    """Number of them that earned nothing, by why: cut, empty, form (not in that of the task's
    answers), wrong."""
    own_commonest_answer: str = ""
    """The answer that most of them give, to whatever problem; empty: the task does not tell."""
    own_commonest_share: Number = None
    """Share of them with this answer."""
    own_commonest_right: Number = None
    """Share of the round's problems to which this answer is right: what it earns by itself."""
    groups_alike: Annotated[Number, Stat("Groups of one reward", "share", format="z.0%")] = None
    """Share of the groups in which all rewards are equal: nothing is learned from them."""
    entropy: Annotated[Number, Stat("Entropy, nats", "nats", format="z.3f")] = None
    """Mean of -ln p of the tokens that this node wrote, nats: an estimate of its policy's entropy,
    over the completions with an advantage; with a KL, over all."""
    kl: Annotated[Number, Stat("KL to the start", "nats", format="z.4f")] = None
    """Mean over the tokens that this node wrote of the k3 estimate of KL(policy || start model),
    nats, at the round's start. None: ``objective.beta`` is 0, so it is not measured."""
    learning_rate: Annotated[Number, Stat("Learning rate", format=".2g")] = None
    """Rate of the round's last update."""
    loss: Annotated[float, Stat("Loss")] = 0.0
    """Loss of the round's last update, the KL's part included."""
    gradient_norm: Annotated[float, Stat("Gradient norm")] = 0.0
    """L2 norm of the last update's gradient, before clipping."""
    updates: Annotated[int, Stat("Updates", "count")] = 0
    """Optimiser steps; 0 where no completion was left to learn from."""
    completions: Annotated[int, Stat("Completions used", "count")] = 0
    """B: number of completions that the loss is the mean over."""
    rows_trained: Annotated[int, Stat("Completions learned from", "count")] = 0
    """Completions with an advantage that were neither filtered nor dropped."""
    filtered_share: Annotated[Number, Stat("Share filtered", "share")] = None
    """Share of the completions with an advantage that were filtered, or not read."""
    dropped_nonfinite: Annotated[int, Stat("Not finite", "count", warning="not finite")] = 0
    """Foreign completions that made a number non-finite."""
    unasked: Annotated[int, Stat("Not asked for", "count", warning="unasked")] = 0
    """Completions that their author was not asked for; left out."""
    unusable: Annotated[int, Stat("Unusable", "count")] = 0
    """Completions that cannot be read exactly; left out. Those of late groups count, too."""
    unreadable: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The same number by author and reason: see ``node/selection.py``."""
    too_few: Annotated[
        int, Stat("Alone in their group", "count", warning="alone in their group")
    ] = 0
    """Completions that are the only one of their problem; left out."""
    over_share: Annotated[
        int, Stat("Beyond strangers' share", "count", warning="beyond strangers' share")
    ] = 0
    """Completions of strangers beyond their share of a batch; left out."""
    over_intake: int = 0
    """Completions of others beyond ``intake``, at pace "free"; left out."""
    staleness: Annotated[Number, Stat("Others' age, rounds", format=".1f")] = None
    """Mean age of others' completions that were used, in their authors' rounds, at pace "free"."""
    joint_share: Annotated[Number, Stat("Others' met own", "share", format="z.0%")] = None
    """Share of them that were compared with completions of this node, at pace "free"."""
    missing: Annotated[tuple[str, ...], Stat("Nodes missing", "count", "Network")] = ()
    """Nodes from which nothing came in time."""
    absent: Annotated[tuple[str, ...], Stat("Members absent", "count", "Network")] = ()
    """Members on which this node did not count: of their part it wrote its share."""
    heard: tuple[str, ...] | None = None
    """Other members of which something of use came; None: the node learns from nobody."""
    finished: tuple[str, ...] = ()
    """Other nodes of which the run's last round has come, at ``pace = "free"``: after it they have
    nothing more to send."""
    late: Annotated[int, Stat("Completions late", "count", "Network")] = 0
    """Completions of earlier rounds that came in this one."""
    late_used: int = 0
    """Late completions that were learned from."""
    refused: Annotated[Mapping[str, int], Stat("Messages refused", "count", "Network")] = field(
        default_factory=dict
    )
    """Messages that could not be used, by the name they came under."""
    quarantined: tuple[str, ...] = ()
    """Nodes whose messages were not read."""
    sent_bytes: Annotated[int, Stat("Bytes sent", "bytes", "Network")] = 0
    """Size of this node's batch as it was sent."""
    sent_bytes_per_token: Annotated[Number, Stat("Bytes sent per token", group="Network")] = None
    """Bytes sent for each token; None where it generated nothing."""
    received_bytes: Annotated[int, Stat("Bytes fetched", "bytes", "Network")] = 0
    """Size of all batches that were fetched."""
    size_bytes: int = 0
    """Size of the round's file, which holds the messages that were learned from."""
    server_apart: Annotated[Number, Stat("Server apart, nats", "nats", format=".1e")] = None
    """Mean |difference| between the log-probabilities of the server that writes for this node and
    those of the node's own weights, nats a token; null: no server wrote."""
    server_apart_first: Annotated[Number, Stat("Server apart at first", "nats")] = None
    """The same in the run's first round: equal weights, so rounding alone."""
    texts: int | None = None
    """Number of texts that an author without weights wrote; null: the node learns."""
    cost: Mapping[str, float] = field(default_factory=dict)
    """Cost of texts: requests, prompt_tokens, completion_tokens, usd; what is 0 is left out."""
    seconds: Annotated[Mapping[str, float], Stat("Seconds", "seconds", "Time", parts=PHASES)] = (
        field(default_factory=dict)
    )
    """Duration of each phase: write, learn, wait (for others), exchange. Older releases have no
    "wait": there it is part of "exchange"."""
    sources: Mapping[str, AuthorReport] = field(default_factory=dict)
    """Reports on the authors, by name."""


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """A line of evaluation.jsonl: mean rewards of greedy answers, accuracies if all are 0 or 1."""

    round: int
    """Rounds trained before the evaluation."""
    validation: Annotated[Number, Stat("Greedy accuracy, validation", "share", "Results")] = None
    """Mean reward on the validation problems: of rewards 0 and 1 the share that is solved."""
    problems: int | None = None
    """Number of validation problems."""
    out_of_distribution: Annotated[
        Number, Stat("Greedy accuracy, out of distribution", "share", "Results")
    ] = None
    """The same out of distribution."""
    out_of_distribution_problems: int | None = None
    """Number of those problems."""
    constant: Annotated[Number, Stat("A constant on validation", "share", "Results")] = None
    """What the one answer that earns most, given to all validation problems, would earn; left out
    below .2, and where it is not known."""
    out_of_distribution_constant: Number = None
    """The same out of distribution."""
    rewards: Mapping[str, float] = field(default_factory=dict)
    """Mean of each reward function on the validation problems, by its name, before its weight; left
    out where the task's own grading is all."""
    partial: bool | None = None
    """True: some reward was neither 0 nor 1, so these are mean rewards and no accuracies."""
    at_end: bool | None = None
    """True: the run had ended, which ``stop_when`` may have done before the last round."""


def as_line(report: RoundReport | EvaluationReport) -> dict[str, Any]:
    """Return the report as a line of its file; an evaluation leaves out what was not measured."""
    whole = isinstance(report, RoundReport)
    return {k: value for k, value in asdict(report).items() if whole or value not in (None, {})}


def waited_share(rounds: Iterable[RoundReport]) -> float | None:
    """Return the share of the rounds' time spent in waiting for others; None: not measured."""
    known = [each.seconds for each in rounds if "wait" in each.seconds]
    all_s = sum(sum(each.values()) for each in known)
    return sum(each["wait"] for each in known) / all_s if all_s else None
