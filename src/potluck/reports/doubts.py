"""Doubts: what of a round a person should look at, and what to do about it."""

from collections.abc import Iterator, Sequence

from potluck.reports.authors import AuthorReport
from potluck.reports.events import Alert
from potluck.reports.habits import WINDOW, habit_told
from potluck.reports.rounds import RoundReport
from potluck.reports.statistics import mean

DOUBTFUL_LOG_RATIO = 0.5
"""Mean log-ratio, nats, from which an author's claims are doubted. However far two honest models
are, it is below 0 but for noise: text is likeliest to the model that wrote it."""
DOUBTFUL_CAPPED_SHARE = 0.5
"""Share of tokens with w > C from which they are doubted too."""
FEWEST_TOKENS = 50
"""Tokens of an author in a round below which a mean over them is noise."""
APART_GROWTH, APART_FLOOR = 20, 1e-6
"""Times the first ``server_apart``, or nats where that is less, that stand out. A server in float32
is 7e-9 to 9e-7 nats apart by rounding; with a part of its weights one round old, at a learning rate
of 1e-4, it was 4e-4. In bfloat16 rounding costs 1e-3 to 4e-3."""
UNHEARD_WEIGHT = 0.05
"""Mean weight of an author's right answers below which nothing is learned from it."""
COLLAPSED = 0.5
"""Part of the best own reward, both means of WINDOW rounds, below which it has collapsed."""
NOISE = 7
"""Standard errors of a mean of WINDOW rounds that a collapse is more than: below, one run of 200
rounds in 50 had a false alarm. What a round differs from the one before tells the error."""
LEAST_ENTROPY = 0.05
"""Mean entropy of WINDOW rounds, nats a completion, below which nearly all of a group are equal."""
UNLIKE = {
    "likelihood": "its texts are unlikely to this model",
    "typicality": "its texts are not typical of this model",
}
"""Reasons for a small weight, by the weight's name."""
DOUBT = (
    "its log-probabilities may be forged. [objective] method = 'lws' reads none, and trust = "
    "'nobody' none of others"
)


class Doubts:
    """Alerts that were told of a run's rounds, so that none is told twice."""

    def __init__(self, weight: str, *, reads_logp: bool) -> None:
        """Take the name of the method's weight; ``reads_logp``: it reads what authors claim."""
        self._weight, self._reads_logp = weight, reads_logp
        self._told: set[tuple[str, str]] = set()
        self._unheard: dict[tuple[str, str], list[AuthorReport]] = {}
        self._recent: dict[str, list[RoundReport]] = {}
        self._best: dict[str, float] = {}
        self._steps: dict[str, list[float]] = {}
        self._lasting: dict[str, dict[tuple[str, str], str]] = {}

    def new(self, report: RoundReport, me: str) -> Iterator[Alert]:
        """Yield the alerts about ``me``'s next round that were not told yet. What several rounds
        tell, such as a silence, is told again when it was over in between."""
        for author, kind, line in doubts(report, me, reads_logp=self._reads_logp):
            if (author, kind) not in self._told:
                yield Alert(me, kind, report.round, line)
            self._told.add((author, kind))
        before, now = self._lasting.get(me, {}), self._of_several(report, me)
        self._lasting[me] = now
        for about, kind in (key for key in now if key not in before):
            yield Alert(me, kind, report.round, now[about, kind])
        for author, its in report.sources.items():
            if author == me or its.success_weight is None:
                continue
            recent = self._unheard.setdefault((me, author), [])
            if its.success_weight >= UNHEARD_WEIGHT:
                recent.clear()
            elif len(recent) < WINDOW:
                recent.append(its)
                if len(recent) == WINDOW:
                    line = _unheard(me, author, recent, self._weight)
                    yield Alert(me, "unheard", report.round, line)

    def _of_several(self, report: RoundReport, me: str) -> dict[tuple[str, str], str]:
        """Find what the last WINDOW rounds tell: a line by (node, kind)."""
        before = self._recent.get(me, [])[-1:]
        pair = [each.own_reward_mean for each in (*before, report)]
        if len(pair) == 2 and pair[0] is not None and pair[1] is not None:
            self._steps.setdefault(me, []).append((pair[1] - pair[0]) ** 2 / 2)
        last = self._recent[me] = [*self._recent.get(me, ()), report][-WINDOW:]
        if len(last) < WINDOW:
            return {}
        gone = set.intersection(*({*each.missing, *each.absent} for each in last)) - {me}
        found = {
            (name, "silent"): f"{me}: nothing came of {name} in {WINDOW} rounds; if it has not "
            f"ended, --resume on its machine brings it back"
            for name in sorted(gone)
        }
        reward, entropy, length = (
            mean(getattr(each, name) for each in last)
            for name in ("own_reward_mean", "entropy", "own_length_mean")
        )
        if reward is not None:
            best = self._best[me] = max(self._best.get(me, reward), reward)
            error = ((mean(self._steps.get(me, ())) or 0.0) / WINDOW) ** 0.5
            if best - reward > max((1 - COLLAPSED) * abs(best), NOISE * error):
                found[me, "reward"] = (
                    f"{me}: its own reward is {reward:.3f} (mean of {WINDOW} rounds), and was "
                    f"{best:.3f}; lower learning_rate, raise [objective] beta, or go back "
                    f"(keep_best)"
                )
        if entropy is not None and (each := entropy * (length or 0.0)) < LEAST_ENTROPY:
            found[me, "entropy"] = (
                f"{me}: its completions are nearly all equal (entropy {each:.3f} nats each), "
                f"so they teach nothing; raise [sampling] temperature or [objective] beta, or stop"
            )
        return found


def _unheard(me: str, author: str, recent: Sequence[AuthorReport], weight: str) -> str:
    """Say that nothing is learned from an author, why, and the way out."""
    mean_weight = mean(each.success_weight for each in recent) or 0.0
    silenced = mean(each.silenced_share for each in recent) or 0.0
    if mean_weight >= UNHEARD_WEIGHT * (1 - silenced):  # without the test it would be enough
        why = f"{habit_told(me, author, recent)}. [objective] habit_test = false learns them"
    elif recent[-1].gradient_share is not None:
        why = "it is not trusted. If you trust its owner, put its key into the roster"
    elif weight not in UNLIKE:
        why = f"so [objective] weight = {weight!r} has it"
    else:
        likelihood = mean(each.likelihood_positive for each in recent) or 0.0
        why = f"{UNLIKE[weight]} (P {likelihood:.3f}). A smaller likelihood_exponent weighs it more"
        if weight == "likelihood":
            why += ", and weight = 'typicality' where the task leaves many ways to go on"
    return (
        f"{me}: nothing is learned from {author}, the mean weight of its right answers in "
        f"{WINDOW} rounds is {mean_weight:.3f}: {why}"
    )


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
