"""The interface of a task, and what all tasks share: ids, digests, splits that do not overlap."""

import hashlib
import math
import reprlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, combinations, groupby
from typing import Any, Literal, NamedTuple, Protocol, cast, get_args

from potluck.episode import Environment
from potluck.fields import Options
from potluck.types import Completion, Episode, PotluckError, Problem

Split = Literal["train", "validation", "out-of-distribution"]


class TaskError(PotluckError):
    """The task has no such problem, or its data cannot be used; the message says what to do."""


class Task(Protocol):
    """Problems, and what counts as right. A pure value: equal on every node."""

    @property
    def digest(self) -> str:
        """Hash of every problem and of the rules of grading; nodes of one run share it."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines on what was left out of the data, to read before a number is trusted."""

    def ids(self, split: Split) -> Sequence[str]:
        """List the ids of a split, in one order on every node; no problem is in two splits."""

    def problem(self, id: str) -> Problem:
        """Look up the problem; raise TaskError if the task has none of this id."""

    def rewards(
        self, problems: Sequence[Problem], completions: Sequence[Completion], texts: Sequence[str]
    ) -> list[float]:
        """Score each completion with one finite reward; ``texts`` are the decoded completions. They
        come from peers, too: grading one never raises, runs nothing that it says, and is bounded.
        """


class TaskOptions(Options, frozen=True, kw_only=True):
    """A table [task] or [out_of_distribution]; each task has a subclass with its name as tag."""

    reward: Literal["task", "hash"] = "task"
    """Reward; "hash" scores by a hash of the token ids, to test the machinery without a task."""

    def make(self) -> Task:
        """Build the task, whatever ``reward`` is; raise TaskError for bad data or bad options."""
        raise NotImplementedError

    @property
    def hub_name(self) -> str:
        """Data set of the Hub that the problems come from; empty: none."""
        return ""

    @property
    def has_answers(self) -> bool:
        """True where the task can grade by itself; else [[reward]] has to."""
        return True

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines to read before a number of this task is trusted."""
        return ()

    @property
    def code(self) -> Mapping[str, str]:
        """Classes of a user that the table names, by their keys: they run."""
        return {}


def environment_of(task: Task) -> Environment | None:
    """Look up the environment of a task whose answers have several turns; None: they have one."""
    return cast("Environment | None", getattr(task, "environment", None))


def binary_rewards(correct: Iterable[bool], completions: Sequence[Completion]) -> list[float]:
    """Pay 1.0 for a correct completion that its model ended itself, else 0.0: also where it ran
    into the length limit (``docs/paper-notes.md``, decision 8)."""
    return [float(right and c.end == "stop") for right, c in zip(correct, completions, strict=True)]


class Attempts(NamedTuple):
    """Completions to grade, each with what belongs to it."""

    problems: Sequence[Problem]
    completions: Sequence[Completion]
    texts: Sequence[str]
    episodes: Sequence[Episode | None]


WORTH_TELLING = 0.2
"""Share of the problems from which on an answer that is right for all of them is told."""
LEAST_SHOWN = 20
"""Characters of a question that does not stand in another text by chance."""
FEWEST_TOLD = 20
"""Number of problems from which on such a share says something."""
LARGEST_REWARD = 1e30
"""Size that a reward may have: its square, and a sum of many of those, is a number too."""


def number_of(reward: Any, before: str = "a reward is", behind: str = "") -> float:
    """Read what a stranger's code pays. Raise TaskError unless it is a number within
    LARGEST_REWARD; its message has ``before`` and ``behind`` around the value."""
    if getattr(reward, "requires_grad", False):
        reward = reward.detach()  # torch warns where such a tensor is read as a number
    with suppress(TypeError, ValueError, OverflowError):
        if not isinstance(reward, str | bytes | bytearray) and math.isfinite(
            number := float(reward)
        ):
            if abs(number) <= LARGEST_REWARD:
                return number
            raise TaskError(
                f"{before} {number:g}{behind}; expected a number of at most {LARGEST_REWARD:g}"
            )
    try:
        is_of_an_array = getattr(reward, "ndim", None) == 0  # numpy writes np.float64(nan)
        shown = repr(reward.item() if is_of_an_array else reward)[:60]
    except Exception:  # of a stranger's class; or an integer too long to be written
        shown = f"a value of {type(reward).__name__} that cannot be shown"
    raise TaskError(f"{before} {shown}{behind}; expected a finite number")


Graded = tuple[list[float], Mapping[str, list[float]]]
"""(rewards, what each reward function returned, by its name)."""


def graded(
    task: Task,
    problems: Sequence[Problem],
    completions: Sequence[Completion],
    texts: Sequence[str],
    episodes: Sequence[Episode | None] = (),
) -> Graded:
    """Grade, and tell the numbers that rewards were made of; "task": the task's own grading."""
    if made := getattr(task, "graded", None):
        answers = Attempts(problems, completions, texts, episodes or [None] * len(texts))
        return cast(Graded, made(answers))
    rewards = task.rewards(problems, completions, texts)
    return rewards, {"task": rewards}


class HeldTask:
    """A task whose problems are all in memory; ids end in a position, from 0."""

    notes: tuple[str, ...] = ()

    def __init__(
        self,
        rules: str,
        splits: Mapping[Split, Sequence[Problem]],
        problems: Iterable[Problem] | None = None,
    ) -> None:
        """Take problems in the digest's order: of ``splits``, or ``problems``, even in no split."""
        self._ids = {split: [p.id for p in splits.get(split, ())] for split in get_args(Split)}
        known = chain.from_iterable(splits.values()) if problems is None else problems
        self._problems = {problem.id: problem for problem in known}
        self.digest = digest_of(rules, self._problems.values())

    def ids(self, split: Split) -> Sequence[str]:
        return self._ids[split]

    def problem(self, id: str) -> Problem:
        if id not in self._problems:
            example = next(iter(self._problems))
            raise TaskError(
                f"{example.partition('/')[0]} has no problem {reprlib.repr(id)}; its "
                f"{len(self._problems)} look like {example!r}, counted from 0"
            )
        return self._problems[id]


def digest_of(rules: str, problems: Iterable[Problem]) -> str:
    """Hash the rules of grading and every problem, in order."""
    whole = hashlib.sha256(rules.encode())
    for p in problems:
        for field in (p.id, p.question, p.answer, p.system):
            raw = field.encode()
            whole.update(len(raw).to_bytes(4, "little") + raw)
    return whole.hexdigest()


def overlaps(task: Task) -> Iterator[str]:
    """Yield a line on each pair of splits that have a question in common, after ``normalised``; not
    of an environment's, whose first words tell nothing. Raise TaskError where two share an id."""
    asked: dict[Split, dict[str, str]] = {
        split: {id: normalised(task.problem(id).question) for id in task.ids(split)}
        for split in get_args(Split)
    }
    for earlier, later in combinations(asked, 2):
        if twice := asked[earlier].keys() & asked[later].keys():
            raise TaskError(f"{min(twice)!r} is in {earlier} and {later}; keep it in one split")
        known = set() if environment_of(task) else set(asked[earlier].values())
        if same := [id for id, question in asked[later].items() if question in known]:
            count = f"{len(same)} of {len(asked[later])} {later} problems"
            be = "is" if len(same) == 1 else "are"
            yield f"overlap: {count} {be} also in {earlier}, first {same[0]}"
    if not environment_of(task):
        yield from _shown_before(task, asked)


def _shown_before(task: Task, asked: Mapping[Split, Mapping[str, str]]) -> Iterator[str]:
    """Yield a line on each split to be measured on of which questions stand in the text before the
    first problem, as worked examples."""
    first = next((id for questions in asked.values() for id in questions), None)
    before = normalised(task.problem(first).system) if first else ""
    for split, questions in asked.items():
        long = [id for id, question in questions.items() if len(question) >= LEAST_SHOWN]
        same = [id for id in long if questions[id] in before] if before else []
        if same and split != "train":
            count = f"{len(same)} of {len(questions)} {split} problems"
            yield f"overlap: {count} stand in the text before the questions, first {same[0]}"


class Constant(NamedTuple):
    """The answer that is right for most problems, and its share of them."""

    answer: str
    share: float


def guess(task: Task, problems: Sequence[Problem]) -> float | None:
    """Compute what a guess among the options earns on average; None: not all problems have some."""
    of = cast("Callable[[Problem], float | None] | None", getattr(task, "guess", None))
    found = [of(problem) for problem in problems] if of else []
    known = [each for each in found if each is not None]
    return sum(known) / len(known) if known and len(known) == len(found) else None


def best_constant(problems: Iterable[Problem]) -> Constant | None:
    """Find the one answer that, given to every problem, earns most: a model may learn it alone.
    None: no problem has an answer of its own."""
    counts = Counter(problem.answer.strip() for problem in problems)
    asked = counts.total()
    del counts[""]
    if not counts:
        return None
    answer, count = max(counts.items(), key=lambda item: item[1])
    return Constant(answer, count / asked)


def constant_worth_telling(problems: Sequence[Problem]) -> Constant | None:
    """Find what one answer to all ``problems`` earns; None: it is not known, or little."""
    found = best_constant(problems)
    return found if found and found.share >= WORTH_TELLING else None


def constants(task: Task) -> Iterator[str]:
    """Yield a line on each split in which one answer earns WORTH_TELLING or more."""
    if environment_of(task):
        return
    for split in get_args(Split):
        ids = task.ids(split)
        problems = [task.problem(id) for id in ids]
        found = constant_worth_telling(problems)
        if found and len(problems) >= FEWEST_TOLD:
            blind = guess(task, problems)
            beside = "" if blind is None else f" (a guess among the options {blind:.2f})"
            yield (
                f"constant: {found.answer[:40]!r}, given to every {split} problem, earns "
                f"{found.share:.2f}{beside}; a model that earns no more may have learned that alone"
            )


def normalised(question: str) -> str:
    """Remove what two copies of a question may differ in: case, and kinds of space."""
    return " ".join(question.casefold().split())


class DerivedTask:
    """Another task, changed in what a subclass says and in its digest."""

    def __init__(self, task: Task, rules: str) -> None:
        self._task, self.notes = task, task.notes
        self.digest = digest_of(rules, ())
        self.environment = environment_of(task)

    def ids(self, split: Split) -> Sequence[str]:
        return self._task.ids(split)

    def problem(self, id: str) -> Problem:
        return self._task.problem(id)

    def graded(self, answers: Attempts) -> Graded:
        return graded(self._task, *answers)

    def answer_of(self, problem: Problem, text: str) -> str:
        """Find the answer that a text gives, as the task of the problem does; empty: none."""
        answer_of = getattr(self._task_of(problem), "answer_of", None)
        return str(answer_of(problem, text)) if answer_of else ""

    def lacking(self, problem: Problem, text: str) -> str:
        """Say what a text lacks of the form of an answer, as the task of the problem does."""
        lacking = getattr(self._task_of(problem), "lacking", None)
        return str(lacking(problem, text)) if lacking else ""

    def guess(self, problem: Problem) -> float | None:
        """Compute what a guess among the options earns, as the task of the problem does."""
        return guess(self._task_of(problem), [problem])

    def _task_of(self, problem: Problem) -> Task:
        return self._task

    def rewards(
        self, problems: Sequence[Problem], completions: Sequence[Completion], texts: Sequence[str]
    ) -> list[float]:
        return graded(self, problems, completions, texts)[0]


class Shortened(DerivedTask):
    """A task without the problems that are too long for the models."""

    def __init__(self, task: Task, fits: Callable[[Problem], bool], limit: str) -> None:
        """Raise TaskError where nothing of a split is left; ``limit`` is the key that says so."""
        self._ids, long = dict[Split, list[str]](), list[str]()
        for split in get_args(Split):
            there = task.ids(split)
            self._ids[split] = [id for id in there if fits(task.problem(id))]
            if there and not self._ids[split]:
                found = f"all {len(there)} {split} prompts"
                raise TaskError(f"{found} are longer than {limit}; raise it")
            long += sorted({*there} - {*self._ids[split]})
        super().__init__(task, f"shortened 1: {task.digest} without {long}")
        if long:
            said = f"{len(long)} of {sum(map(len, self._ids.values())) + len(long)} problems"
            note = f"{said} have prompts longer than {limit} and are left out"
            self.notes = (*task.notes, note)
        else:
            self.digest = task.digest

    def ids(self, split: Split) -> Sequence[str]:
        return self._ids[split]


class WithOutOfDistribution(DerivedTask):
    """A task whose out-of-distribution split is that of another, graded by the other's rules."""

    def __init__(self, task: Task, other: Task) -> None:
        """Raise TaskError where the two do not go together."""
        if environment_of(task) or environment_of(other):
            raise TaskError(
                "[out_of_distribution] with an environment, in it or in [task], is not possible; "
                "name problems of another kind in [task], or drop the table"
            )
        if not (there := other.ids("out-of-distribution")):
            raise TaskError(
                "the task of [out_of_distribution] has no out-of-distribution problems; choose "
                "another one, such as math500, or drop the table"
            )
        own = {id for split in ("train", "validation") for id in task.ids(split)}
        if shared := next((id for id in there if id in own), None):
            raise TaskError(
                f"[out_of_distribution] has the problem {shared!r}, which is one of [task], too; "
                f"choose another task"
            )
        super().__init__(task, f"elsewhere 1: {task.digest} and {other.digest}")
        self._other, self._elsewhere = other, frozenset(there)
        self.notes = (*task.notes, *other.notes)

    def ids(self, split: Split) -> Sequence[str]:
        return (self._other if split == "out-of-distribution" else self._task).ids(split)

    def problem(self, id: str) -> Problem:
        return (self._other if id in self._elsewhere else self._task).problem(id)

    def _task_of(self, problem: Problem) -> Task:
        return self._other if problem.id in self._elsewhere else self._task

    def graded(self, answers: Attempts) -> Graded:
        """Grade; with the parts of each reward where all problems are of [task]."""
        if not any(p.id in self._elsewhere for p in answers.problems):
            return super().graded(answers)
        rewards: list[float] = []
        triples = zip(*answers[:3], strict=True)
        for is_other, run in groupby(triples, lambda triple: triple[0].id in self._elsewhere):
            task = self._other if is_other else self._task
            rewards += task.rewards(*map(list, zip(*run, strict=True)))
        return rewards, {"task": rewards}
