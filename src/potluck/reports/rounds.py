"""Reports on rounds and evaluations: the lines of metrics.jsonl and evaluation.jsonl.

Nodes write them; displays, trackers and ``potluck show`` read them. The order of the fields is
that of the keys in the files. A field that an older run has not written gets its default when it
is read; None is "not measured".

Shares are 0..1, times seconds, sizes bytes. Every number is one node's own view.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

BLOCKING_WEIGHT = 0.2
"""Weight of a token below which it blocks its completion: what it would teach hardly arrives."""

DOUBTFUL_LOG_RATIO = 0.5
"""Mean log-ratio, nats, from which an author's claims are doubted. However far two honest models
are, it is below 0 but for noise: text is likeliest to the model that wrote it."""
DOUBTFUL_CAPPED_SHARE = 0.5
"""Share of tokens with w > C from which they are doubted too."""
DOUBTFUL_GROWTH = 0.25
"""Growth of an author's phrase in this node's answers that a person should look at."""
FEWEST_TOKENS = 50
"""Tokens of an author in a round below which a mean over them is noise."""
APART_GROWTH, APART_FLOOR = 20, 1e-6
"""Times the first ``server_apart``, or nats where that is less, that stand out. A server in float32
is 7e-9 to 9e-7 nats apart by rounding; with a part of its weights one round old, at a learning rate
of 1e-4, it was 4e-4. In bfloat16 rounding costs 1e-3 to 4e-3."""
DOUBT = (
    "its log-probabilities may be forged. [objective] method = 'lws' reads none, and trust = "
    "'nobody' none of others"
)


@dataclass(frozen=True, slots=True)
class AuthorReport:
    """One author's completions of one round, as this node saw them.

    The log-ratio is ln pi_start - ln pi_gen of a token, nats: how much likelier it is here
    than it was to its author. Its exponential is the uncapped importance weight w.
    """

    completions: int = 0
    """Its completions of the round that were used."""
    tokens: int = 0
    """Tokens of all completions, those without an advantage too."""
    reward_mean: float | None = None
    """Mean reward of them."""
    with_advantage: int = 0
    """Completions that differ in reward from their group; the fields below are about these."""
    rows_trained: int = 0
    """Completions with an advantage that were neither filtered nor dropped."""
    log_ratio_mean: float | None = None
    """Mean over tokens, nats."""
    log_ratio_max: float | None = None
    """Largest of any token, nats."""
    k1: float | None = None
    """Mean over completions of the mean over tokens of d = -log-ratio, nats."""
    k3: float | None = None
    """The same of e^d - d - 1, nats: what the filter compares with its limit by default."""
    capped_share: float | None = None
    """Share of tokens with w > C, measured under every method; only TIS caps them."""
    filtered_share_positive: float | None = None
    """Share not learned from among completions of positive advantage; 0 in the paper's methods."""
    filtered_share_negative: float | None = None
    """Share not learned from, filtered or not read, among those of negative advantage."""
    effective_sample_size: float | None = None
    """(sum w)^2 / (n sum w^2) over its n tokens, 0..1; 1 on-policy."""
    k1_positive: float | None = None
    """k1 over its completions of positive advantage (successes) alone."""
    k1_negative: float | None = None
    """k1 over its completions of negative advantage alone."""
    k3_positive: float | None = None
    """k3 over its successes alone."""
    k3_negative: float | None = None
    """k3 over its completions of negative advantage alone."""
    likelihood_positive: float | None = None
    """Mean over successes of P, the geometric mean of their tokens' probabilities here; 0..1."""
    likelihood_negative: float | None = None
    """The same over completions of negative advantage, where the method reads them."""
    bits_per_byte: float | None = None
    """Surprise of its texts here, -log2 p over the bytes of UTF-8. Tokenizers that cut text into
    more or fewer tokens do not change what it means, so it can be compared between nodes."""
    success_weight: float | None = None
    """Share of its successes that is taken: the sum of their advantages as they are learned from,
    over the sum as they came. P under LWS with c = 1; weights of single tokens are not in it."""
    token_weight_min: float | None = None
    """Smallest w of any token of a success; of an author without log-probabilities, smallest p."""
    blocked_share: float | None = None
    """Share of its successes with a token whose w (or p, as above) is below 0.2."""
    blocked_share_own_wrong: float | None = None
    """The same, of problems that no completion of this node solved (joint groups only)."""
    blocked_share_own_mixed: float | None = None
    """The same, of problems that some of its completions solved."""
    blocked_share_own_right: float | None = None
    """The same, of problems that all of its completions solved."""
    worth: float | None = None
    """Gain to this node's own gradient, in units of own completions. Measured by
    ``potluck replay``; in metrics.jsonl only of runs of 0.2.0."""
    worth_noise: float | None = None
    """Standard error of ``worth``."""
    gradient_share: float | None = None
    """Share of this author in the sum of the norms of what moves the model; null if it is trusted.
    All that are not trusted have half at most together (``objective/trust.py``)."""
    habit: str | None = None
    """Phrase of its right answers that has grown most in this node's own; as ``worth``."""
    habit_share: float | None = None
    """Share of its right answers that have the phrase, 0..1."""
    habit_own_first: float | None = None
    """Share of this node's answers that had the phrase in its first rounds."""
    habit_own: float | None = None
    """The same share now."""


@dataclass(frozen=True, slots=True)
class RewardReport:
    """The numbers of one reward function on the completions that this node wrote in a round."""

    mean: float | None = None
    """Mean, before the function's weight."""
    std: float | None = None
    """Sample standard deviation; None of fewer than two."""


class Column(NamedTuple):
    """A statistic in a table: its title, and how ``format`` writes its value."""

    title: str
    format: str
    live: bool = False
    """Shown of the other authors after each round, too."""


AUTHOR_COLUMNS: Mapping[str, Column] = {
    "reward_mean": Column("reward", "z.3f"),
    "log_ratio_mean": Column("ln ratio", "z.3f", live=True),
    "likelihood_positive": Column("P", "z.3f"),
    "bits_per_byte": Column("bits/byte", "z.2f"),
    "success_weight": Column("taken", "z.0%"),
    "filtered_share_negative": Column("filtered", "z.0%"),
    "effective_sample_size": Column("ESS", "z.2f"),
    "worth": Column("worth", "z.2f", live=True),
    "worth_noise": Column("worth ±", "z.2f", live=True),
}
"""Fields of AuthorReport that ``potluck show`` and the live display print, in this order."""


@dataclass(frozen=True, slots=True)
class RoundReport:
    """Results of one round: a line of metrics.jsonl."""

    round: int
    """Number of the round, from 0."""
    reward_mean: float | None = None
    """Mean over the completions of all nodes that were used; None if there are none."""
    own_reward_mean: float | None = None
    """Mean over the completions that this node wrote."""
    rewards: Mapping[str, RewardReport] = field(default_factory=dict)
    """Each reward function by its name, before its weight; "task": the task's own grading."""
    own_length_mean: float | None = None
    """Mean length of the completions that this node wrote, tokens."""
    own_cut_share: float | None = None
    """Share of them that reached the length limit: no stop token came."""
    groups_alike: float | None = None
    """Share of the groups in which all rewards are equal: nothing is learned from them."""
    entropy: float | None = None
    """Mean of -ln p of the tokens that this node wrote, nats: an estimate of its policy's entropy,
    over the completions with an advantage; with a KL, over all."""
    kl: float | None = None
    """Mean over the tokens that this node wrote of the k3 estimate of KL(policy || start model),
    nats, at the round's start. None: ``objective.beta`` is 0, so it is not measured."""
    learning_rate: float | None = None
    """Rate of the round's last update."""
    loss: float = 0.0
    """Loss of the round's last update, the KL's part included."""
    gradient_norm: float = 0.0
    """L2 norm of the last update's gradient, before clipping."""
    updates: int = 0
    """Optimiser steps; 0 where no completion was left to learn from."""
    completions: int = 0
    """B: number of completions that the loss is the mean over."""
    rows_trained: int = 0
    """Completions with an advantage that were neither filtered nor dropped."""
    filtered_share: float | None = None
    """Share of the completions with an advantage that were filtered, or not read."""
    dropped_nonfinite: int = 0
    """Foreign completions that made a number non-finite."""
    unasked: int = 0
    """Completions that their author was not asked for; left out."""
    unusable: int = 0
    """Completions that cannot be read exactly; left out. Those of late groups count, too."""
    unreadable: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The same number by author and reason: see ``node/learning/read.py``."""
    too_few: int = 0
    """Completions that are the only one of their problem; left out."""
    over_share: int = 0
    """Completions of strangers beyond their share of a batch; left out."""
    over_intake: int = 0
    """Completions of others beyond ``intake``, at pace "free"; left out."""
    staleness: float | None = None
    """Mean age of the others' completions that were used, in rounds of their authors, at pace
    "free"."""
    joint_share: float | None = None
    """Share of them that were compared with completions of this node, at pace "free"."""
    missing: tuple[str, ...] = ()
    """Nodes from which nothing came in time."""
    late: int = 0
    """Completions of earlier rounds that came in this one."""
    late_used: int = 0
    """Late completions that were learned from."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """Messages that could not be used, by the name they came under."""
    quarantined: tuple[str, ...] = ()
    """Nodes whose messages were not read."""
    sent_bytes: int = 0
    """Size of this node's batch as it was sent."""
    sent_bytes_per_token: float | None = None
    """Bytes sent for each token; None where it generated nothing."""
    received_bytes: int = 0
    """Size of all batches that were fetched."""
    size_bytes: int = 0
    """Size of the round's file, which holds the messages that were learned from."""
    server_apart: float | None = None
    """Mean |difference| between the log-probabilities of the server that writes for this node and
    those of the node's own weights, nats a token; null: no server wrote."""
    server_apart_first: float | None = None
    """The same in the run's first round: equal weights, so rounding alone."""
    texts: int | None = None
    """Number of texts that an author without weights wrote; null: the node learns."""
    cost: Mapping[str, float] = field(default_factory=dict)
    """Cost of these texts: requests, prompt_tokens, completion_tokens, usd; what is 0 is left
    out."""
    share: float | None = None
    """Share of the round's completions that this node wrote, in a run of release 0.2.0 with
    ``shares = "speed"``; else null."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Duration of each phase: write, learn, wait (for others), exchange. Older releases have no
    "wait": there it is part of "exchange"."""
    sources: Mapping[str, AuthorReport] = field(default_factory=dict)
    """Reports on the authors, by name."""


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """Greedy accuracies of a model: a line of evaluation.jsonl."""

    round: int
    """Rounds trained before the evaluation."""
    validation: float | None = None
    """Share of the validation problems that the model solves."""
    problems: int | None = None
    """Number of validation problems."""
    out_of_distribution: float | None = None
    """The same out of distribution."""
    out_of_distribution_problems: int | None = None
    """Number of those problems."""


def as_line(report: RoundReport | EvaluationReport) -> dict[str, Any]:
    """Return the report as a line of its file; an evaluation leaves out what was not measured.

    >>> as_line(EvaluationReport(round=5, validation=0.75, problems=200))
    {'round': 5, 'validation': 0.75, 'problems': 200}
    """
    whole = isinstance(report, RoundReport)
    return {key: value for key, value in asdict(report).items() if whole or value is not None}


def waited_share(rounds: Iterable[RoundReport]) -> float | None:
    """Return the share of the rounds' time in which the node waited for others; None: not measured.

    >>> waited_share([RoundReport(0, seconds={"write": 3.0, "wait": 1.0})])
    0.25
    """
    known = [each.seconds for each in rounds if "wait" in each.seconds]
    all_s = sum(sum(each.values()) for each in known)
    return sum(each["wait"] for each in known) / all_s if all_s else None


def doubts(report: RoundReport, me: str, *, reads_logp: bool) -> Iterator[tuple[str, str, str]]:
    """Yield (node, field, line for the user) of what stands out, and say what to do about it.
    ``reads_logp`` tells if the run's method reads what authors claim."""
    if report.own_cut_share == 1:
        yield (
            me,
            "own_cut_share",
            f"{me}: every one of its completions ran out of tokens before it ended, so each "
            f"scores at most 0; raise [sampling] max_new_tokens (or max_total_tokens), or "
            f"see in completions.jsonl why it does not stop",
        )
    apart, first = report.server_apart, report.server_apart_first
    if apart and first is not None and apart >= APART_GROWTH * max(first, APART_FLOOR):
        yield (
            me,
            "server_apart",
            f"{me}: the log-probabilities of its server are {apart:.1e} nats a token from its own, "
            f"in the run's first writing {first:.1e}: the server may have old weights, all or in "
            f"part (docs/vllm.md, 'The checks')",
        )
    if reads_logp:
        yield from _doubtful_claims(report, me)
    for author, its in report.sources.items():
        if its.habit is None or its.habit_own is None or its.habit_own_first is None:
            continue
        if its.habit_own - its.habit_own_first >= DOUBTFUL_GROWTH:
            yield (
                author,
                "habit",
                f"{author}: {me} writes {its.habit!r} in {its.habit_own:.0%} of its answers, at "
                f"first in {its.habit_own_first:.0%}; {author} does in {its.habit_share:.0%} of "
                f"its right ones. Is it a good habit? completions.jsonl has the texts. If not, "
                f"leave {author} out of the roster or the run (docs/trust.md)",
            )


def _doubtful_claims(report: RoundReport, me: str) -> Iterator[tuple[str, str, str]]:
    """Yield where an author's log-probabilities stand out; of one that is not trusted none is read,
    so nothing is said."""
    for author, its in report.sources.items():
        ratio, capped = its.log_ratio_mean, its.capped_share
        if author == me or its.gradient_share is not None or its.tokens < FEWEST_TOKENS:
            continue
        found = {}
        if ratio is not None and ratio >= DOUBTFUL_LOG_RATIO:
            found["log_ratio_mean"] = f"{ratio:.1f} nats a token likelier to {me} than it claims"
        if capped is not None and capped >= DOUBTFUL_CAPPED_SHARE:
            found["capped_share"] = f"{capped:.0%} of tokens above the weight cap of {me}"
        for kind, what in found.items():
            yield author, kind, f"{author}: {what}; {DOUBT}"
