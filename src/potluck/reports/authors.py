"""Reports on one author: its part of a line of metrics.jsonl."""

from dataclasses import dataclass
from typing import Annotated

from potluck.reports.statistics import Stat

BLOCKING_WEIGHT = 0.2
"""Weight of a token below which it blocks its completion: what it would teach hardly arrives."""


@dataclass(frozen=True, slots=True)
class AuthorReport:
    """One author's completions of one round, as one learner saw them.

    The log-ratio is ln pi_start - ln pi_gen of a token, nats: how much likelier it is to the
    learner than it was to its author. Its exponential is the uncapped importance weight w.
    """

    completions: Annotated[
        int,
        Stat("Completions", "count", place=0),
        "Completions of the author in the round that were used.",
    ] = 0
    tokens: Annotated[
        int,
        Stat("Tokens", "count"),
        "Tokens of all its completions, those without an advantage too.",
    ] = 0
    reward_mean: Annotated[
        float | None,
        Stat("Reward", "share", row="reward", format="z.3f", place=1),
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
        float | None,
        Stat("Mean log-ratio", "nats", signed=True, row="ln ratio", format="z.3f"),
        "Mean of ln p(learner) - ln p(author) per token. Far above 0: claims to doubt.",
    ] = None
    log_ratio_max: float | None = None
    """Largest of any token, nats."""
    k1: Annotated[
        float | None,
        Stat("Distance k1", "nats", signed=True, place=5),
        "Mean over completions of ln p(author) - ln p(learner) per token. 0: both write alike.",
    ] = None
    k3: Annotated[
        float | None,
        Stat("Distance k3", "nats"),
        "The same of e^d - d - 1, where k1 has d: never below 0. The default filter looks at it.",
    ] = None
    capped_share: Annotated[
        float | None,
        Stat("Weights at the cap", "share"),
        "Share of tokens with w > C, measured under every method. Only TIS caps them.",
    ] = None
    filtered_share_positive: float | None = None
    """Share not learned from among completions of positive advantage; 0 in the paper's methods."""
    filtered_share_negative: Annotated[
        float | None,
        Stat("Filtered, of the wrong ones", "share", row="filtered", format="z.0%", place=3),
        "Share of its wrong answers that the learner does not learn from: filtered or not read.",
    ] = None
    effective_sample_size: Annotated[
        float | None,
        Stat("Effective sample size", "share", row="ESS", format="z.2f", place=4),
        "Effective sample size of a token, (sum w)^2 / (n sum w^2) over n. 1: all weigh the same.",
    ] = None
    k1_positive: float | None = None
    """k1 over its completions of positive advantage (successes) alone."""
    k1_negative: float | None = None
    """k1 over its completions of negative advantage alone."""
    k3_positive: float | None = None
    """k3 over its successes alone."""
    k3_negative: float | None = None
    """k3 over its completions of negative advantage alone."""
    likelihood_positive: Annotated[
        float | None,
        Stat("Likelihood of right answers", "share", row="P", format="z.3f"),
        "Mean over its right answers of P, the geometric mean of p(learner) over their tokens.",
    ] = None
    likelihood_negative: float | None = None
    """The same over completions of negative advantage, where the method reads them."""
    bits_per_byte: Annotated[float | None, Stat(row="bits/byte", format="z.2f")] = None
    """Surprise of its texts here, -log2 p over the bytes of UTF-8. Tokenizers that cut text into
    more or fewer tokens do not change what it means, so it can be compared between nodes."""
    success_weight: Annotated[
        float | None,
        Stat("Taken", "share", row="taken", format="z.0%", place=2),
        "Share of its right answers that the learner takes, after filter and weights.",
    ] = None
    silenced_share: Annotated[
        float | None,
        Stat("Silenced by the habit test", "share", row="habit", format="z.0%"),
        "Share of its right answers that are not learned from, as they bear its habit.",
    ] = None
    tested_habit: str | None = None
    """Phrase of its habit that is most foreign to this node: see ``objective/habit.py``."""
    habit_gain: float | None = None
    """Reward of this node's answers that bear the habit less that of its others to the same
    problems. None: its answers do not differ in it, and nothing is silenced."""
    habit_gain_error: float | None = None
    """Standard error of ``habit_gain``."""
    token_weight_min: float | None = None
    """Smallest w of any token of a success; of an author without log-probabilities, smallest p."""
    blocked_share: Annotated[
        float | None,
        Stat("Blocked successes", "share"),
        "Share of its right answers that have a token with w (or p) below 0.2: hardly any arrives. "
        "It means nothing in language, where nearly every right answer has one (0.96 to 1.00).",
    ] = None
    blocked_share_own_wrong: float | None = None
    """The same, of problems that no completion of this node solved (joint groups only)."""
    blocked_share_own_mixed: float | None = None
    """The same, of problems that some of its completions solved."""
    blocked_share_own_right: float | None = None
    """The same, of problems that all of its completions solved."""
    worth: Annotated[
        float | None,
        Stat("Worth", signed=True, row="worth", format="z.2f"),
        "Gain to the learner's own gradient, in units of own completions. Measured by "
        "``potluck replay``; in metrics.jsonl only of runs of 0.2.0.",
    ] = None
    worth_noise: Annotated[float | None, Stat(row="worth ±", format="z.2f")] = None
    """Standard error of ``worth``."""
    gradient_share: Annotated[
        float | None,
        Stat("Share of the gradient", "share", place=6),
        "Share of a stranger in what moves the learner; all strangers together have half at most.",
    ] = None
    habit: str | None = None
    """Phrase that has grown most in this node's answers; this and what follows of 0.2.0 alone."""
    habit_share: float | None = None
    """Share of its right answers that have the phrase, 0..1."""
    habit_own_first: float | None = None
    """Share of this node's answers that had the phrase in its first rounds."""
    habit_own: float | None = None
    """The same share now."""
