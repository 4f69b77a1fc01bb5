"""The answer to "does sharing help?": each node of a run beside its controls.

Compared are the rewards that a model earned with what it wrote itself, sampled, in the second half
of the rounds. The unit is a problem: a problem counts once, with the mean over the completions.
Seeds are not: another one may differ by more than the interval.
"""

import shlex
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean

import msgspec

from potluck import intervals
from potluck.files import printable, write_atomically
from potluck.reports.rounds import EvaluationReport
from potluck.reports.runs import COMPLETIONS, EVALUATION, WrittenCompletion, read_lines
from potluck.reports.tail import DAMAGED, read_small

ANSWERS = "answers.json"
"""File of a run's folder."""
MOST_BYTES = 1 << 18
LEAST_PAIRED = 0.5
"""Share of the problems of the smaller run from which problems are compared one by one."""
CONTROLS = {
    "half": "by itself with the same part of the writing, in smaller groups",
    "half-problems": "by itself with the same part of the writing, on fewer problems",
    "alone": "by itself with all of the writing",
    "own-part": "together, learning from its own completions only",
}
"""Meaning of each control."""


class ControlAnswer(msgspec.Struct, frozen=True):
    """One node of a run beside one control."""

    node: str
    control: str
    """Its kind: a key of CONTROLS."""
    together: float
    """Mean reward of the node's own completions in the run."""
    alone: float
    """The same in the control."""
    difference: tuple[float, float, float]
    """``together`` less ``alone``, and its interval of 95 %."""
    problems: int
    """Problems compared."""
    written: tuple[int, int]
    """Completions that the node wrote in all rounds: in the run, in the control."""
    greedy: tuple[float, float] | None = None
    """Greedy accuracy on the validation problems at the end: of the run, of the control."""

    @property
    def verdict(self) -> str:
        _, low, high = self.difference
        return (
            "better together"
            if low > 0
            else "worse together"
            if high < 0
            else "no difference shown"
        )


def answer_of(run: Path, control: Path, node: str, kind: str, rounds: int) -> ControlAnswer | None:
    """Compare ``node`` in the folders of a run and its control over the second half of
    ``rounds``; None if one of them wrote nothing there.

    Where both have most problems, each is compared with itself: what is hard for both cancels.
    """
    ours, wrote = _rewards(run / node, node, rounds)
    theirs, wrote_alone = _rewards(control / node, node, rounds)
    if not ours or not theirs:
        return None
    common = [id for id in ours if id in theirs]
    if len(common) >= LEAST_PAIRED * min(len(ours), len(theirs)):
        pairs = [(fmean(ours[id]), fmean(theirs[id])) for id in common]
        found = intervals.difference_interval([a - b for a, b in pairs])
        together, alone = (fmean(each) for each in zip(*pairs, strict=True))
    else:
        a, b = ([fmean(each) for each in its.values()] for its in (ours, theirs))
        found = intervals.unpaired_interval(a, b)
        together, alone = fmean(a), fmean(b)
    before, after = _greedy(run / node, rounds), _greedy(control / node, rounds)
    return ControlAnswer(
        *(node, kind, together, alone, (found.value, found.low, found.high)),
        problems=len(common) or min(len(ours), len(theirs)),
        written=(wrote, wrote_alone),
        greedy=None if before is None or after is None else (before, after),
    )


def sentence(answer: ControlAnswer) -> str:
    """Say what the numbers show, and no more.

    >>> of = ControlAnswer("small", "half", 0.72, 0.69, (0.03, 0.01, 0.05), 288, (3600, 3600))
    >>> print(sentence(of))  # doctest: +NORMALIZE_WHITESPACE
    small: better together. Own reward .720 together, .690 by itself with the same part of the
    writing, in smaller groups: +.030 [+.010, +.050] over 288 problems, one seed. It wrote 3,600
    and 3,600 completions.
    """
    shown = f"{_signed(answer.difference[0])} [{', '.join(map(_signed, answer.difference[1:]))}]"
    greedy = ""
    if answer.greedy:
        greedy = " Greedy at the end: {} and {}.".format(*map(_plain, answer.greedy))
    how, (wrote, wrote_alone) = CONTROLS.get(answer.control, "in another control"), answer.written
    return (
        f"{printable(answer.node, 32)}: {answer.verdict}. Own reward {_plain(answer.together)} "
        f"together, {_plain(answer.alone)} {how}: {shown} over {answer.problems:,} problems, one "
        f"seed. It wrote {wrote:,} and {wrote_alone:,} completions.{greedy}"
    )


def answers(run: Path) -> tuple[ControlAnswer, ...]:
    """Read what the controls of a run folder told; nothing where there is no such file, or it
    cannot be read."""
    try:
        data = read_small(run / ANSWERS, MOST_BYTES)
        return msgspec.json.decode(data, type=tuple[ControlAnswer, ...]) if data else ()
    except DAMAGED:
        return ()


def told(run: Path) -> list[str]:
    """Say what the controls of a run folder told; of one without, how to make one."""
    found = [*map(sentence, answers(run))]
    return found or [f"does sharing help? a control tells: {control_command(run)}"]


def control_command(run: Path) -> str:
    """Return the command that makes the control ``half`` of a run that is done."""
    where = shlex.quote(str(run))
    return f"potluck run {where}/recipe.json --out {where} --resume --control half"


def add_answers(run: Path, found: Iterable[ControlAnswer]) -> tuple[ControlAnswer, ...]:
    """Keep what controls told beside what earlier ones did; return all of it."""
    kept = {(each.node, each.control): each for each in (*answers(run), *found)}
    write_atomically(run / ANSWERS, msgspec.json.encode([*kept.values()]))
    return (*kept.values(),)


def _rewards(folder: Path, node: str, rounds: int) -> tuple[dict[str, list[float]], int]:
    """Read the rewards of the node's own completions by problem, of the second half of ``rounds``,
    and count the completions of all."""
    # A round that was done again after a crash has its lines twice: the later one counts.
    rewards = {
        (line.round, line.problem, line.index): line.reward
        for line in read_lines(folder / COMPLETIONS, WrittenCompletion)
        if line.author == node and line.round < rounds
    }
    late: dict[str, list[float]] = {}
    for (round, problem, _), reward in rewards.items():
        if round >= rounds // 2:
            late.setdefault(problem, []).append(reward)
    return late, len(rewards)


def _greedy(folder: Path, rounds: int) -> float | None:
    lines = [*read_lines(folder / EVALUATION, EvaluationReport)]
    return next((e.validation for e in reversed(lines) if e.round == rounds), None)


def _plain(number: float) -> str:
    """Write a number as tables of results do.

    >>> _plain(0.72), _plain(-0.0301), _plain(1.5)
    ('.720', '-.030', '1.500')
    """
    text = f"{number:z.3f}"
    return text.replace("0.", ".", 1) if abs(number) < 1 and not text.startswith("1") else text


def _signed(number: float) -> str:
    text = _plain(number)
    return text if text.startswith("-") else f"+{text}"
