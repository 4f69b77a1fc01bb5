"""The answer to "does sharing help?": each node of a run beside its controls.

Its intervals are over problems and not over seeds: another seed may differ by more.
"""

import shlex
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from potluck.files import printable, write_atomically
from potluck.intervals import Interval
from potluck.reports import right
from potluck.reports.comparison import (
    MEASURES,
    K,
    judged,
    measured,
    plain,
    read_earned,
    within,
)
from potluck.reports.runs import RECIPE, SMALL_BYTES, RunReadError, end_of, read_recipe
from potluck.reports.tail import DAMAGED, read_small
from potluck.right import merged

ANSWERS = "answers.json"
CONTROLS = {
    "half": "by itself with the same part of the writing, in smaller groups",
    "half-problems": "by itself with the same part of the writing, on fewer problems",
    "alone": "by itself with all of the writing",
    "own-part": "learning from its own completions only",
}


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
    written: tuple[int, int]
    """Completions that the node wrote in all rounds: in the run, in the control."""
    greedy: tuple[float, float] | None = None
    """Mean reward of greedy answers to the validation problems at the end: of the run, of the
    control."""
    passed: tuple[float, float] | None = None
    """Chance that one of K completions of a problem is right: in the run, in the control. None: no
    reward function decides that, or too few were written."""
    rounds: int | None = None
    """Rounds of the node when it was compared; None: not noted."""
    is_stale: bool = False
    """True: the node ends after another number of rounds now."""

    @property
    def verdict(self) -> str:
        _, low, high = self.difference
        better, worse = "better together" if low > 0 else "", "worse together" if high < 0 else ""
        after = f" after {self.rounds} rounds" if self.is_stale else ""
        return f"{better or worse or 'no difference shown'}{after}"


def answer_of(run: Path, control: Path, node: str, kind: str, rounds: int) -> ControlAnswer | None:
    """Compare ``node`` in the folders of a run and its control over the second half of
    ``rounds``; None if one of them wrote too little there."""
    if not all((at / RECIPE).is_file() for at in (run, control)):
        return None
    recipes = read_recipe(run), read_recipe(control)
    earned = [
        {node: read_earned(at / node, node, rounds, recipe)}
        for at, recipe in zip((run, control), recipes, strict=True)
    ]
    decides = right.function_of(
        [
            (right.rule_of(recipe), merged(right.binary_in_run(at), its[node].binary))
            for at, recipe, its in zip((run, control), recipes, earned, strict=True)
        ]
    )
    ours, theirs = (judged(its, decides) for its in earned)
    found = {name: measured([(ours, theirs)], node, [node], name) for name in MEASURES}
    reward, written = found["own reward"], found["written"]
    if not (reward and reward.difference and written):
        return None
    greedy, passed = found["greedy"], found[f"pass@{K}"]
    gap = reward.difference
    return ControlAnswer(
        *(node, kind, reward.a, reward.b, (gap.value, gap.low, gap.high)),
        problems=reward.problems,
        written=(int(written.a), int(written.b)),
        greedy=(greedy.a, greedy.b) if greedy else None,
        passed=(passed.a, passed.b) if passed else None,
        rounds=rounds,
    )


def sentence(answer: ControlAnswer) -> str:
    """Say what the numbers show, and no more."""
    measured = {f"pass@{K}": answer.passed, "Greedy at the end": answer.greedy}
    more = "".join(f" {n}: {plain(x[0])}, {plain(x[1])} there." for n, x in measured.items() if x)
    how, (wrote, wrote_alone) = CONTROLS.get(answer.control, "in another control"), answer.written
    return (
        f"{printable(answer.node, 32)}: {answer.verdict}. Own reward {plain(answer.together)} "
        f"together, {plain(answer.alone)} {how}: {within(Interval(*answer.difference))} over "
        f"{answer.problems:,} problems, one seed. It wrote {wrote:,} "
        f"completions together, {wrote_alone:,} in the control.{more}"
    )


def answers(run: Path) -> tuple[ControlAnswer, ...]:
    """Read what the controls of a run folder told; nothing where the file cannot be read."""
    ends = dict[str, int]()
    with suppress(RunReadError):
        recipe = read_recipe(run)
        ends = {name: end_of(run / name, recipe) for name in recipe.node}
    each = ((x, x.rounds and ends.get(x.node, x.rounds)) for x in _kept(run))
    return tuple(replace(answer, is_stale=end != answer.rounds) for answer, end in each)


def _kept(run: Path) -> tuple[ControlAnswer, ...]:
    data = read_small(run / ANSWERS, SMALL_BYTES) or b"[]"
    with suppress(*DAMAGED):
        return msgspec.json.decode(data, type=tuple[ControlAnswer, ...])
    return ()


def told(run: Path) -> list[str]:
    """Say what the controls of a run folder told; of one without, how to make one, where all of
    its nodes are here: a control of a node that joined others would train theirs from nothing."""
    if found := [*map(sentence, answers(run))]:
        return found
    with suppress(RunReadError):  # which is told where the run is read
        if not all((run / name).is_dir() for name in read_recipe(run).node):
            return []
    return [f"does sharing help? a control tells: {control_command(run)}"]


def control_command(run: Path) -> str:
    """Return the command that makes the control ``half`` of a run that is done."""
    where = shlex.quote(str(run))
    return f"potluck run {where}/recipe.json --out {where} --resume --control half"


def add_answers(run: Path, found: Iterable[ControlAnswer]) -> None:
    """Keep what controls told beside what earlier ones did."""
    kept = {(each.node, each.control): each for each in (*_kept(run), *found)}
    write_atomically(run / ANSWERS, msgspec.json.encode([*kept.values()]))
