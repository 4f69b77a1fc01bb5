"""Doubts: what of a node's rounds a person should look at, and what to do about it."""

import math
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from potluck.files import printable
from potluck.reports.events import Alert
from potluck.reports.rounds import AuthorReport, RoundReport
from potluck.reports.statistics import mean
from potluck.right import RightRule, merged

WINDOW = 5
"""Rounds in means of what lasts; the newest habit test has counted what answers earned."""
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
"""Mean weight of an author's successes below which nothing is learned from it."""
COLLAPSED = 0.5
"""Part of the best own reward, both means of WINDOW rounds, below which it has collapsed."""
NOISE = 7
"""Standard errors of a mean of WINDOW rounds that a collapse is more than: below, one run of 200
rounds in 50 had a false alarm. What a round differs from the one before tells the error."""
LEAST_ENTROPY = 0.05
"""Mean entropy of WINDOW rounds, nats a completion, below which nearly all of a group are equal."""
FOREIGN_LIKELIHOOD = 0.1
"""Likelihood P of an author's successes, a mean per token, below which the author writes in
another notation: between models that learn from each other P was .86 to .97, between notations with
no form in common .001 (docs/partners.md)."""
UNLIKE = {
    "likelihood": "its texts are unlikely to this model",
    "typicality": "its texts are not typical of this model",
}
"""Reasons for a small weight, by the weight's name."""
FORGED = (
    "its log-probabilities may be forged. [objective] method = 'lws' reads none, and trust = "
    "'nobody' none of others"
)
BEGINNING = "^ "
"""Head of a phrase that answers begin with."""

Found = Iterator[tuple[str, str, str]]
"""Node that it is about, kind of the alert, and line for the user, for each that stands out."""


HELD_BACK_ROUNDS = 3
"""Rounds in a row after which it is told that an author which is not trusted teaches nothing, or
that its part is written for it."""
TRUSTING = (
    "if you trust its owner, put its key into a [swarm] roster, or set [objective] trust = "
    "'everybody' among friends (docs/trust.md)"
)
CONSTANT_ROUNDS, CONSTANT_SHARE = 3, 0.9
"""Rounds in a row, and share of a node's answers, from which one answer to all is told."""
ZERO_ROUNDS = 2
"""Rounds in a row in which all rewards are 0 after which it is told."""
NOTHING = {
    "cut": "cut off",
    "empty": "empty",
    "form": "not in the form of an answer",
    "wrong": "wrong",
}
"""Why completions earned nothing, in words."""
ZERO_WAYS_OUT = {
    "cut": "raise [sampling] max_new_tokens",
    "empty": "look at the prompt: potluck run RECIPE --check --prompt",
    "form": (
        "ask for the form in a system prompt, drop it (tags = false), or take a model that keeps "
        "it: potluck evaluate shows answers"
    ),
    "wrong": "take easier problems, a larger group_size, or another model",
}
"""Ways out of each, in words."""


def nothing_in_words(counts: Mapping[str, int]) -> str:
    """Tell how many completions earned nothing for which reason, the commonest first.

    >>> nothing_in_words({"cut": 1, "form": 7})
    '7 not in the form of an answer, 1 cut off'
    """
    by_count = sorted(counts.items(), key=lambda item: -item[1])
    return ", ".join(f"{count} {NOTHING.get(kind, kind)}" for kind, count in by_count)


class Doubts:
    """Alerts about the rounds of one node, each told once; what several rounds tell, such as a
    silence, is told again when it was over in between."""

    def __init__(
        self,
        me: str,
        weight: str,
        *,
        reads_logp: bool,
        rule: RightRule | None = None,
        binary: Mapping[str, bool] = MappingProxyType({}),
    ) -> None:
        """Take the name of the method's weight; ``reads_logp``: it reads what authors claim;
        ``rule``: how the recipe tells what is right; ``binary``: of each reward function whether it
        paid nothing but 0 and 1 in earlier rounds."""
        self._me, self._weight, self._reads_logp = me, weight, reads_logp
        self._rule, self._binary = rule or RightRule(), dict(binary)
        self._told: set[tuple[str, str]] = set()
        self._lasting: set[tuple[str, str]] = set()
        self._last = deque[RoundReport](maxlen=WINDOW)
        self._weighed: dict[str, deque[AuthorReport]] = {}
        self._finished: frozenset[str] = frozenset()
        self._silence = Counter[str]()
        """Rounds in a row in which nothing came of a node."""
        self._longest_silence = Counter[str]()
        """The most of them after which it came again."""
        self._refused = Counter[str]()
        """Messages under its name that were refused in these rounds."""
        self._written_for = Counter[str]()
        """Rounds in a row in which the part of a member was written that was here."""
        self._best = -math.inf
        self._steps: list[float] = []

    def new(self, report: RoundReport) -> Iterator[Alert]:
        """Yield the alerts about the next round that were not told yet."""
        before = [self._last[-1].own_reward_mean] if self._last else []
        match [*before, report.own_reward_mean]:
            case [float() as then, float() as now]:
                self._steps.append((now - then) ** 2 / 2)
        self._last.append(report)
        self._count_silence(report)
        lasting = list(self._of_several()) if len(self._last) == WINDOW else []
        lasting += self._unheard(report)
        lasting += self._taken_for_absent(report)
        self._told -= self._lasting - {(about, kind) for about, kind, _ in lasting}
        self._lasting = {(about, kind) for about, kind, _ in lasting}
        for about, kind, line in (*self._of_round(report), *lasting):
            if (about, kind) not in self._told:
                self._told.add((about, kind))
                yield Alert(self._me, kind, report.round, line)

    def _of_round(self, report: RoundReport) -> Found:
        me = self._me
        yield from self._another_right(report)
        if report.own_cut_share == 1:
            what = "completions ran out of tokens before it ended, so each scores at most 0"
            keys = "[sampling] max_new_tokens (or max_total_tokens)"
            if (own := report.sources.get(me)) and own.turns_mean:
                what = "episodes was cut off before the environment was done"
                keys = "[task] max_turns, [sampling] max_new_tokens or max_total_tokens"
            line = (
                f"{me}: every one of its {what}; raise {keys}, or see in completions.jsonl why it "
                f"does not stop"
            )
            yield me, "own_cut_share", line
        elif line := self._all_zero():
            yield me, "all_zero", line
        if line := self._constant():
            yield me, "constant", line
        apart, first = report.server_apart, report.server_apart_first
        if apart and first is not None and apart >= APART_GROWTH * max(first, APART_FLOOR):
            line = (
                f"{me}: the log-probabilities of its server are {apart:.1e} nats a token from its "
                f"own, in the run's first writing {first:.1e}: the server may have old weights, "
                f"all or in part (docs/vllm.md, 'The checks')"
            )
            yield me, "server_apart", line
        for author, its in report.sources.items() if self._reads_logp else ():
            # Nothing is read, so nothing doubted, of an author that is not trusted.
            if author == me or its.gradient_share is not None or its.tokens < FEWEST_TOKENS:
                continue
            if (ratio := its.log_ratio_mean) is not None and ratio >= DOUBTFUL_LOG_RATIO:
                line = f"{author}: {ratio:.1f} nats a token likelier to {me} than it claims"
                yield author, "log_ratio_mean", f"{line}; {FORGED}"
            if (capped := its.capped_share) is not None and capped >= DOUBTFUL_CAPPED_SHARE:
                line = f"{author}: {capped:.0%} of tokens above the weight cap of {me}"
                yield author, "capped_share", f"{line}; {FORGED}"

    def _another_right(self, report: RoundReport) -> Found:
        """Tell that another function decides what is right than before, or none any more."""
        before, was = self._rule.function(self._binary), bool(self._binary)
        noted = {name: its.binary for name, its in report.rewards.items() if its.binary is not None}
        self._binary = merged(self._binary, noted)
        now = self._rule.function(self._binary)
        if not was or before == now:
            return
        other = sorted(name for name, its in noted.items() if not its)
        paid = f"{', '.join(other)} scored other numbers than 0 and 1"
        if now:
            line = f"{paid}, so from now on {now} decides which answers are right"
        else:
            line = f"{paid}, so no answer is called right any more, and pass@k is left out"
        way_out = "[evaluation] right names the reward function that decides, also with --resume"
        yield self._me, "right_found" if now else "right_lost", f"{self._me}: {line}; {way_out}"

    def _all_zero(self) -> str:
        """Tell of rounds in a row in which nobody earned anything, and why; empty: it did."""
        rounds = [*self._last][-ZERO_ROUNDS:]
        counts = Counter[str]()
        for each in rounds:
            if each.reward_mean != 0 or each.groups_alike != 1:
                return ""
            counts.update(each.own_earned_nothing)
        if len(rounds) < ZERO_ROUNDS or not counts:
            return ""
        commonest = max(counts, key=lambda kind: counts[kind])
        return (
            f"{self._me}: for {ZERO_ROUNDS} rounds all rewards were 0, so nothing was learned. Its "
            f"own completions: {nothing_in_words(counts)}; {ZERO_WAYS_OUT[commonest]}"
        )

    def _constant(self) -> str:
        """Tell of one answer to nearly all problems, in rounds in a row; empty: there is none."""
        rounds = [*self._last][-CONSTANT_ROUNDS:]
        answers = {each.own_commonest_answer for each in rounds}
        shares = [each.own_commonest_share or 0.0 for each in rounds]
        earned = mean(each.own_commonest_right for each in rounds) or 0.0
        if len(rounds) < CONSTANT_ROUNDS or min(shares) < CONSTANT_SHARE:
            return ""
        if len(answers) > 1 or "" in answers:
            return ""
        if earned >= 1 - CONSTANT_SHARE / 2:  # it is the right one to most
            return ""
        return (
            f"{self._me}: {shares[-1]:.0%} of its answers are {printable(answers.pop(), 40)!r}, to "
            f"whatever problem; this constant earns {earned:.2f} here. Lower learning_rate, raise "
            f"[objective] beta, or take problems with more different answers"
        )

    def _of_several(self) -> Found:
        me, last = self._me, self._last
        if all(each.groups_alike == 1 and each.reward_mean != 0 for each in last):
            line = (
                f"{me}: for {WINDOW} rounds all completions of each problem earned the same, so "
                f"nothing is learned any more; raise [sampling] temperature or group_size, or take "
                f"problems of another difficulty"
            )
            yield me, "alike", line
        yield from self._silent()
        reward = mean(each.own_reward_mean for each in last)
        if reward is not None:
            best = self._best = max(self._best, reward)
            error = ((mean(self._steps) or 0.0) / WINDOW) ** 0.5
            if best - reward > max((1 - COLLAPSED) * abs(best), NOISE * error):
                line = (
                    f"{me}: its own reward is {reward:.3f} (mean of {WINDOW} rounds), and was "
                    f"{best:.3f}; lower learning_rate, raise [objective] beta, or go back "
                    f"(keep_best)"
                )
                yield me, "reward", line
        entropy = mean(each.entropy for each in last)
        length = mean(each.own_length_mean for each in last) or 0.0
        if entropy is not None and entropy * length < LEAST_ENTROPY:
            line = (
                f"{me}: its completions are nearly all equal (entropy {entropy * length:.3f} nats "
                f"each), so they teach nothing; raise [sampling] temperature or [objective] beta, "
                f"or stop"
            )
            yield me, "entropy", line

    def _count_silence(self, report: RoundReport) -> None:
        heard = _heard_of(report)
        awaited = {*report.missing, *report.absent} - {self._me}
        for name in heard & self._silence.keys():
            silence = self._silence[name]
            self._longest_silence[name] = max(self._longest_silence[name], silence)

        silent = awaited - heard
        for name in self._silence.keys() - silent:
            del self._silence[name], self._refused[name]
        for name in silent:
            self._silence[name] += 1
            self._refused[name] += report.refused.get(name, 0)
        self._finished = (self._finished - heard) | {*report.finished}

    def _silent(self) -> Found:
        """Yield the nodes of which nothing came in WINDOW rounds, nor in twice the longest silence
        that a slow node had before: no completion, late or unreadable ones included. A node that
        wrote the run's last round has nothing more to send."""
        for name, silence in sorted(self._silence.items()):
            if silence < max(WINDOW, 2 * self._longest_silence[name]) or name in self._finished:
                continue
            if self._refused[name]:
                line = (
                    f"{self._me}: all that came of {name} in {silence} rounds was refused "
                    f"({self._refused[name]} messages); events.jsonl says why"
                )
                yield name, "refused", line
            else:
                line = (
                    f"{self._me}: nothing came of {name} in {silence} rounds; if it has not ended, "
                    f"--resume on its machine brings it back"
                )
                yield name, "silent", line

    def _unheard(self, report: RoundReport) -> Found:
        """Yield the authors from which nothing was learned in WINDOW rounds, and why."""
        for author, its in report.sources.items():
            if author != self._me and its.success_weight is not None:
                self._weighed.setdefault(author, deque(maxlen=WINDOW)).append(its)
        for author, recent in self._weighed.items():
            is_strange = recent[-1].gradient_share is not None
            # Of what the habit test silences no likelihood is known, by which trust holds back.
            weighed = [each.likelihood_positive is not None for each in recent]
            held_back = is_strange and all(weighed[-HELD_BACK_ROUNDS:])
            rounds = HELD_BACK_ROUNDS if held_back else WINDOW
            newest = [*recent][-rounds:]
            weights = [each.success_weight or 0.0 for each in newest]
            if len(newest) < rounds or max(weights) >= UNHEARD_WEIGHT:
                continue
            mean_weight = sum(weights) / rounds
            silenced = mean(each.silenced_share for each in newest) or 0.0
            likelihood = mean(each.likelihood_positive for each in newest)
            is_foreign = likelihood is not None and likelihood < FOREIGN_LIKELIHOOD
            is_enough_untested = mean_weight >= UNHEARD_WEIGHT * (1 - silenced)
            if is_enough_untested and not (is_strange and is_foreign):
                told = habit_told(self._me, author, [*recent])
                why = f"{told}. [objective] habit_test = false learns them"
            elif is_foreign and self._weight in UNLIKE:
                why = (
                    f"it writes in a way that this model would not (P {likelihood:.3f}), so they "
                    f"cannot learn from each other (docs/partners.md)"
                )
            elif is_strange:
                why = (
                    f"it is not trusted, so only its right and likely answers teach (P "
                    f"{likelihood or 0.0:.3f}); {TRUSTING}"
                )
            elif self._weight not in UNLIKE:
                why = f"so [objective] weight = {self._weight!r} has it"
            else:
                why = f"{UNLIKE[self._weight]} (P {likelihood or 0.0:.3f}). A smaller "
                why += "likelihood_exponent weighs it more"
                if self._weight == "likelihood":
                    why += ", and weight = 'typicality' where the task leaves many ways to go on"
            line = (
                f"{self._me}: nothing is learned from {author}, the mean weight of its "
                f"successes in {rounds} rounds ({sum(each.completions for each in newest)} "
                f"completions) is {mean_weight:.3f}: {why}"
            )
            yield author, "unheard", line

    def _taken_for_absent(self, report: RoundReport) -> Found:
        """Yield the members whose part this node wrote in HELD_BACK_ROUNDS though they were here:
        they are not trusted, and had nothing right that it could learn. Of others ``_unheard``
        tells."""
        taken = {
            name
            for name in report.absent
            if (its := report.sources.get(name)) and its.completions and its.success_weight is None
        }
        self._written_for = Counter({name: self._written_for[name] + 1 for name in taken})
        for name, rounds in sorted(self._written_for.items()):
            if rounds >= HELD_BACK_ROUNDS:
                line = (
                    f"{self._me}: {name} is here, but in {rounds} rounds none of its answers taught"
                    f" this node, which takes it for absent and writes its part, too; others that "
                    f"do not miss {name} leave that out. It is not trusted; {TRUSTING}"
                )
                yield name, "taken_for_absent", line


def _heard_of(report: RoundReport) -> set[str]:
    """Return the authors of which completions came, of use or not."""
    read = {author for author, its in report.sources.items() if its.completions}
    return {*read, *report.unreadable, *(report.heard or ())}


def habit_told(me: str, author: str, reports: Sequence[AuthorReport]) -> str:
    """Say what the last of ``me``'s reports on an author tell of the author's habit; "" if none was
    tested, as ``me`` never had the choice. The phrase has nothing that steers a terminal."""
    last = reports[-WINDOW:]
    tested = next((each for each in reversed(last) if each.habit_gain is not None), AuthorReport())
    gain, error, phrase = tested.habit_gain, tested.habit_gain_error, tested.tested_habit
    if gain is None or error is None or not phrase:
        return ""
    begin = phrase.startswith(BEGINNING)
    have = f"{'begin with' if begin else 'have'} '{printable(phrase.removeprefix(BEGINNING), 60)}'"
    earned = f"earn {abs(gain):.2f} {'more' if gain >= 0 else 'less'} (standard error {error:.2f})"
    if gain >= error:  # objective/habit.py, PROVEN
        return f"{author}'s successes that {have} are learned from: {me}'s own that do {earned}"
    share = mean(each.silenced_share for each in last)
    return (
        f"{share or 0:.0%} of {author}'s successes (last {WINDOW} rounds) are not learned "
        f"from: they {have}, and {me}'s own that do {earned}"
    )
