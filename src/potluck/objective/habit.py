"""The habit test: what of an author's way to write is not taken over before it has paid here.

To learn from a success is to learn its wording, too. Where this node could write either way,
each success of another pulls the choice towards the other's way, whether it earns more or not, and
no likelihood shows it: both ways are likely. So of author j's successes those are silent that
bear j's habit, until this node's own answers that bear it have earned more than its own without:

    H_j   phrases of at most three words that stand in at least 1/2 of j's successes, in at
          least 1/4 fewer of this node's successes, and in at least 1/4 fewer of its answers,
          all of them, to the problems of j's successes (where it wrote none: in 1/4 at least)
    h_i   share of H_j that answer i has; it bears the habit if h_i > 1/2
    t_j   gain_j / its standard error; gain_j: slope of this node's reward on h, over its own
          answers, within the answers of one round to one problem

    A_i <- 0    if j wrote i, h_i > 1/2, t_j < 1, and h differs between own answers to one problem

Everything is counted over the last ten rounds that have answers; an answer is a success if it earns
more than 0 and no less than the round's mean, that of this node's own and the trusted authors'
answers: an author that is not trusted moves nobody's (as in ``trust.py``). If an author that is not
trusted has successes while this node has less than two, although at least two of its answers earn
more than 0 (graded rewards, and better ones among the trusted), all of its answers are silent until
there are two to compare with. Rewards of 0 and 1 never come to that.

Of an author's phrases the MOST_PHRASES commonest are looked at, so that long texts of a peer cost
seconds at most. Where this node never has the choice (a skill that it lacks, a notation that it
never writes) the test is silent and the weight decides.
Nothing that an author claims is read, and the model is not asked. docs/method.md has the reasons
and the limits.
"""

import math
import re
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

WINDOW = 10
FEWEST = 2
"""Successes, of the author and of this node, below which there is nothing to compare."""
SHARE, FOREIGN = 1 / 2, 1 / 4
"""Least share of an author's successes that have a phrase of its habit, and how much smaller
the shares of this node's answers are at least."""
BORNE = 1 / 2
"""Share of the habit above which an answer bears it."""
MOST_PHRASES = 512
PROVEN = 1.0
"""Standard errors by which the gain lies above 0 once the habit is learned from."""
WORDS = 3
BEGIN = "^"
MOST_CHARACTERS = 4000
"""Part of a text that is looked at, from its beginning."""

_WORD = re.compile(r"\d|\w{1,32}|[^\w\s]")  # a word without end would fill the line


def words_of(text: str) -> str:
    """Cut a text into words and marks with a space around each: it has a phrase if
    ``f" {phrase} "`` is in it.

    >>> words_of("#7 is")
    ' ^ # 7 is '
    """
    return " ".join(["", BEGIN, *_WORD.findall(text[:MOST_CHARACTERS]), ""])


def phrase_counts(cut: Iterable[str]) -> Counter[str]:
    """Count the texts that have each phrase; a text counts it once. They come from ``words_of``."""
    counts: Counter[str] = Counter()
    for each in cut:
        words = each.split()
        phrases = {
            " ".join(words[at : at + size])
            for size in range(1, WORDS + 1)
            for at in range(len(words) - size + 1)
        }
        counts.update(phrases - {BEGIN})
    return counts


class GradedAnswer(NamedTuple):
    """One graded answer."""

    problem: str
    author: str
    reward: float
    text: str


@dataclass(frozen=True, slots=True)
class Habit:
    """An author's habit as this node sees it, and what it earned this node."""

    phrases: tuple[str, ...]
    """H: first how the answers begin, then the most foreign phrase."""
    gain: float | None = None
    """Reward of this node's answers with the whole habit less that of those without. None: this
    node's answers to one problem do not differ in it."""
    error: float | None = None
    """Standard error of ``gain``."""
    is_untested: bool = False
    """True: successes of this node are too few to find the habit. All answers count as it."""

    @property
    def is_silenced(self) -> bool:
        """True if successes that bear the habit are not learned from."""
        if self.is_untested:
            return True
        if self.gain is None or self.error is None:
            return False
        return self.gain < PROVEN * self.error

    def share(self, words: str) -> float:
        """Return h, the share of the habit's phrases in a text, which ``words_of`` has cut."""
        if self.is_untested:
            return 1.0
        return sum(f" {phrase} " in words for phrase in self.phrases) / len(self.phrases)


class _RoundAnswers:
    """The answers of one round, cut into words."""

    def __init__(self, answers: Sequence[GradedAnswer], trusts: Callable[[str], bool]) -> None:
        """Take a round's answers; ``trusts`` tells whose rewards count in the mean."""
        counted = [answer.reward for answer in answers if trusts(answer.author)]
        mean = math.fsum(counted) / max(1, len(counted))
        least = mean - 1e-9 * abs(mean)  # all alike are all successes, whatever the rounding
        self.rows = [
            (answer, words_of(answer.text), answer.reward > 0 and answer.reward >= least)
            for answer in answers
        ]
        """Each answer, its words, and whether it is a success."""
        self.success_words = dict[str, list[str]]()
        """Successes of each author, cut into words."""
        for answer, words, is_success in self.rows:
            if is_success:
                self.success_words.setdefault(answer.author, []).append(words)
        self.common = {
            author: Counter(dict(sorted(_half(its).items(), key=_commonest)[:MOST_PHRASES]))
            for author, its in self.success_words.items()
        }
        """Counts, by author, of the commonest phrases of at least SHARE of its successes."""


class HabitTest:
    """One node's habit test. What it knows are the answers of the last rounds."""

    def __init__(
        self,
        me: str,
        lines: Iterable[Mapping[str, Any]] = (),
        *,
        trusts: Callable[[str], bool] = lambda author: True,
    ) -> None:
        """Begin from the lines of completions.jsonl, as after each of their rounds. ``trusts``
        tells of an author if it is trusted; this node trusts itself."""
        self.me = me
        self._trusted = trusts
        keys = itemgetter(*GradedAnswer._fields)
        rounds = groupby(lines, itemgetter("round"))
        last = deque(([GradedAnswer(*keys(line)) for line in its] for _, its in rounds), WINDOW)
        self._rounds = deque((_RoundAnswers(each, self._trusts) for each in last), WINDOW)

    def habits(self, answers: Sequence[GradedAnswer]) -> dict[str, Habit]:
        """Add a round's answers, and find the habit of each other author that has one."""
        if answers:  # a round without any leaves no line to begin again from
            self._rounds.append(_RoundAnswers(answers, self._trusts))
        authors = sorted({answer.author for answer in answers} - {self.me})
        found = {author: self._habit(author) for author in authors}
        return {author: habit for author, habit in found.items() if habit}

    def _habit(self, author: str) -> Habit | None:
        texts, own_texts = self._successes(author), self._successes(self.me)
        count, own_count = len(texts), len(own_texts)
        if count and own_count < FEWEST and not self._trusts(author) and self._earns():
            return Habit((), is_untested=True)
        if min(count, own_count) < FEWEST:
            return None
        common: Counter[str] = Counter()
        for each in self._rounds:
            common.update(each.common.get(author, {}))
        looked_at = [phrase for phrase, _ in sorted(common.items(), key=_commonest)[:MOST_PHRASES]]
        theirs, own = _having(texts, looked_at), _having(own_texts, looked_at)
        foreign = {
            phrase: share - own[phrase] / own_count
            for phrase, having in theirs.items()
            if (share := having / count) >= SHARE and share - own[phrase] / own_count >= FOREIGN
        }
        beside = self._beside(author, foreign)
        chosen = [p for p in foreign if (theirs[p] - beside[p]) / count >= FOREIGN]
        if not chosen:
            return None
        habit = Habit(tuple(sorted(chosen, key=lambda p: (p[0] != BEGIN, -foreign[p], -len(p), p))))
        return self._tried(habit)

    def _successes(self, author: str) -> list[str]:
        return [words for each in self._rounds for words in each.success_words.get(author, ())]

    def _trusts(self, author: str) -> bool:
        return author == self.me or self._trusted(author)

    def _earns(self) -> bool:
        """Return whether enough answers of this node earn more than 0, successes or not."""
        own = (a for each in self._rounds for a, *_ in each.rows if a.author == self.me)
        return sum(answer.reward > 0 for answer in own) >= FEWEST

    def _beside(self, author: str, phrases: Collection[str]) -> Counter[str]:
        """Sum over the author's successes the share of own answers to the same problem, in the
        same round, that have each phrase."""
        sums = Counter[str]()
        for each in self._rounds:
            solved, own = Counter[str](), dict[str, list[str]]()
            for answer, words, is_success in each.rows:
                if answer.author == self.me:
                    own.setdefault(answer.problem, []).append(words)
                solved[answer.problem] += is_success and answer.author == author
            for problem, times in solved.items():
                if times and (texts := own.get(problem)):
                    for phrase in phrases:
                        having = sum(f" {phrase} " in words for words in texts)
                        sums[phrase] += times * having / len(texts)  # type: ignore[assignment]
        return sums

    def _tried(self, habit: Habit) -> Habit:
        sxx = sxy = syy = 0.0
        freedom = -1
        for each in self._rounds:
            rows: dict[str, list[tuple[float, float]]] = {}
            for answer, words, _ in each.rows:
                if answer.author == self.me:
                    row = habit.share(words), answer.reward
                    rows.setdefault(answer.problem, []).append(row)
            for its in rows.values():
                mean_h, mean_r = (sum(column) / len(its) for column in zip(*its, strict=True))
                sxx += sum((h - mean_h) * (h - mean_h) for h, _ in its)
                sxy += sum((h - mean_h) * (r - mean_r) for h, r in its)
                syy += sum((r - mean_r) * (r - mean_r) for _, r in its)
                freedom += len(its) - 1
        if sxx <= 1e-9 or not math.isfinite(syy):  # huge rewards overflow
            return habit
        gain = sxy / sxx
        error = math.sqrt(max(syy - gain * sxy, 1e-9) / max(freedom, 1) / sxx)
        return Habit(habit.phrases, gain, error)


def _half(texts: Sequence[str]) -> dict[str, int]:
    return {p: n for p, n in phrase_counts(texts).items() if n >= SHARE * len(texts)}


def _commonest(counted: tuple[str, int]) -> tuple[int, int, str]:
    """Sort by number, the longest of equals first."""
    phrase, number = counted
    return -number, -len(phrase), phrase


def _having(texts: Sequence[str], phrases: Iterable[str]) -> dict[str, int]:
    return {phrase: sum(f" {phrase} " in words for words in texts) for phrase in phrases}


def silenced_answers(answers: Sequence[GradedAnswer], habits: Mapping[str, Habit]) -> list[bool]:
    """Tell of each answer if it bears a habit of its author that is silenced."""
    return [
        (habit := habits.get(answer.author)) is not None
        and habit.is_silenced
        and habit.share(words_of(answer.text)) > BORNE
        for answer in answers
    ]
