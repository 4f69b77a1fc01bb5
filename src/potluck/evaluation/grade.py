"""Answers to problems that a model does not train on, graded, and the numbers that they give.
Which of them are right, ``potluck/right.py`` says; a mean reward is an accuracy only where all
rewards are 0 or 1."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from potluck import intervals
from potluck.config import RunConfig
from potluck.episode import played, turns_in
from potluck.model import Reader
from potluck.right import TASK, RightRule, is_binary, is_full, merged
from potluck.rollout.base import Engine, GreedySampler, Progress, RolloutRequest, Sampler
from potluck.tasks import Split, Task
from potluck.tasks.base import Constant, constant_worth_telling, environment_of, graded
from potluck.tasks.faults import Kind, fault_of
from potluck.types import Problem

MOST_SHOWN = 2_000
"""Characters of an answer that are kept, of its end."""
UNBOUNDED = 2**31
"""Tokens: only the model's context bounds an answer further."""


@dataclass(frozen=True, slots=True)
class SplitResult:
    """Greedy answers to the problems of a split."""

    mean: float
    """Mean reward."""
    problems: int
    rewards: Mapping[str, float]
    """Mean of each reward function, before its weight; empty: the task's own grading alone."""
    is_partial: bool
    """True: some reward is neither 0 nor 1, so the mean is no share of right answers."""
    full: Mapping[str, float]
    """Share of the answers that each function paid in full: right ones, if it decides."""
    binary: Mapping[str, bool]
    """Names of the functions, each with True where all its numbers are 0 or 1."""
    constant: Constant | None = None
    """Best answer that is the same to all problems, if it earns much, by the task's own grading."""


@dataclass(frozen=True, slots=True)
class ProblemScores:
    """Rewards of a model's answers to one problem, in the order of writing."""

    problem_id: str
    rewards: tuple[float, ...]
    unfinished: int
    """Number of answers that were cut: they ran out of room, or of turns."""
    ends: tuple[str, ...] = ()
    """End of each; of an episode that its environment broke off none."""
    by_function: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Numbers of each reward function, before its weight; "task": the task's own grading."""
    faults: tuple["AnswerFault", ...] = ()
    """Answers that some function did not pay in full, or that earned nothing."""

    def right(self, function: str) -> list[bool]:
        """Tell of each answer whether it is right, by the function that decides."""
        pairs = zip(self.by_function[function], self.ends, strict=True)
        return [is_full(function, number, end) for number, end in pairs]


@dataclass(frozen=True, slots=True)
class AnswerFault:
    """An answer that is not right, or earned nothing, and why."""

    kind: Kind
    what: str
    """The kind in words."""
    id: str
    """Problem that was asked."""
    expected: str
    """Right answer; empty: the task has none."""
    text: str
    """The answer, its end if it is long."""


@dataclass(frozen=True, slots=True)
class ModelScores:
    """Scores of one model on the problems of a split."""

    greedy: tuple[ProblemScores, ...]
    sampled: tuple[ProblemScores, ...]
    """Several answers to each of the same problems, in their order; empty: none were asked."""

    @property
    def answers(self) -> tuple[ProblemScores, ...]:
        """All that there is of it."""
        return (*self.greedy, *self.sampled)

    def values(self, k: int, decides: str | None) -> dict[str, list[float]]:
        """Return each measure's number for each problem; without a function that ``decides`` what
        is right, none of those that count right answers."""
        values = {"greedy": [answers.rewards[0] for answers in self.greedy]}
        if decides:
            values["accuracy"] = [float(answers.right(decides)[0]) for answers in self.greedy]
        for name in self.greedy[0].by_function:
            values[f"reward/{name}"] = [each.by_function[name][0] for each in self.greedy]
        right = [answers.right(decides) for answers in self.sampled] if decides else []
        for each in dict.fromkeys((1, k)) if right else ():
            values[f"pass@{each}"] = [
                intervals.pass_at_k(sum(its), len(its), each) for its in right
            ]
        return values


def evaluation_engine(engine: Engine, config: RunConfig) -> Engine:
    """Return the engine with the room that ``[evaluation]`` gives answers."""
    most = config.evaluation.max_new_tokens
    settings = replace(
        engine.settings,
        max_new_tokens=most or config.sampling.max_new_tokens,
        # A limit of its own means it: then only the model's context bounds it further.
        max_total_tokens=UNBOUNDED if most else config.sampling.max_total_tokens,
    )
    return replace(engine, settings=settings)


def evaluate(
    policy: Reader, engine: Engine, task: Task, split: Split, count: int, progress: Progress
) -> SplitResult | None:
    """Answer the first ``count`` problems of ``split`` greedily; None if it has none."""
    if not (problems := first_problems(task, split, count)):
        return None
    answers = grade_samples(policy, engine, task, problems, GreedySampler(), 1, progress)
    count, names = len(answers), [*answers[0].by_function]
    means = {n: sum(each.by_function[n][0] for each in answers) / count for n in names}
    is_plain = all(each.by_function == {TASK: each.rewards} for each in answers)
    return SplitResult(
        sum(each.rewards[0] for each in answers) / count,
        count,
        rewards={} if is_plain else means,
        is_partial=not all(is_binary(each.rewards) for each in answers),
        full={n: sum(each.right(n)[0] for each in answers) / count for n in names},
        binary=binary_of(answers),
        constant=None if environment_of(task) else constant_worth_telling(problems),
    )


def first_problems(task: Task, split: Split, count: int) -> list[Problem]:
    """Return always the same problems, so that models and rounds can be compared."""
    return [task.problem(id) for id in task.ids(split)[:count]]


def grade_samples(
    policy: Reader,
    engine: Engine,
    task: Task,
    problems: Sequence[Problem],
    sampler: Sampler,
    count: int,
    progress: Progress,
) -> list[ProblemScores]:
    """Write ``count`` answers to each problem, and grade them."""
    requests = [RolloutRequest(problem, count) for problem in problems]
    written = engine.generate(requests, sampler, author="evaluation", progress=progress)
    by_id = {problem.id: problem for problem in problems}
    asked = [by_id[c.problem_id] for c in written]
    said = [turns_in(c.text or "") or () if c.turns else None for c in written]
    texts = [
        policy.answer(by_id[c.problem_id], c.token_T)
        if turns is None
        else "\n".join(turn.content for turn in turns)
        for c, turns in zip(written, said, strict=True)
    ]
    there = environment_of(task)
    pairs = zip(asked, written, strict=True)
    episodes = [played(there, problem, c) for problem, c in pairs] if there else []
    rewards, by_function = graded(task, asked, written, texts, episodes)
    place = {(c.problem_id, c.index): at for at, c in enumerate(written)}

    def of(id: str, value_N: Sequence[float]) -> tuple[float, ...]:
        # An episode that its environment broke off is not there, and earns nothing.
        places = (place.get((id, index)) for index in range(count))
        return tuple(0.0 if at is None else value_N[at] for at in places)

    faults = dict[str, list[AnswerFault]]()
    for at, (problem, c, text) in enumerate(zip(asked, written, texts, strict=True)):
        in_full = all(is_full(name, its[at], c.end) for name, its in by_function.items())
        if rewards[at] <= 0 or not in_full:
            fault = fault_of(task, problem, c, text)
            end = text[-MOST_SHOWN:]
            told = AnswerFault(fault.kind, fault.what, problem.id, problem.answer[:MOST_SHOWN], end)
            faults.setdefault(problem.id, []).append(told)
    ended = [float(c.end == "stop") for c in written]
    ends = {(c.problem_id, c.index): c.end for c in written}
    parts = {id: {name: of(id, its) for name, its in by_function.items()} for id in by_id}
    return [
        ProblemScores(
            id,
            of(id, rewards),
            count - int(sum(of(id, ended))),
            ends=tuple(ends.get((id, index), "") for index in range(count)),
            by_function=parts[id],
            faults=tuple(faults.get(id, ())),
        )
        for id in by_id
    ]


def binary_of(answers: Iterable[ProblemScores]) -> dict[str, bool]:
    """Tell of each reward function whether all its numbers are 0 or 1."""
    found = ({name: is_binary(its) for name, its in a.by_function.items()} for a in answers)
    return merged(*found)


def summary(
    scores_by_model: Mapping[str, ModelScores],
    k: int,
    *,
    rule: RightRule,
    binary: Mapping[str, bool],
    shown: int = 1,
) -> dict[str, Any]:
    """Return the measures of a split, and how two models, "A" and "B", compare, as data for JSON.

    ``rule`` tells which function decides what is right, by what is known of their numbers beyond
    this split (``binary``). Of the answers that are not right, or where none decides, that earned
    nothing, ``shown`` of each kind are in it. Raise ValueError without problems, or where they are
    not the same."""
    asked = {tuple(a.problem_id for a in scores.greedy) for scores in scores_by_model.values()}
    if len(asked) != 1 or asked == {()}:
        raise ValueError(f"{len(asked)} lists of problems; expected one that all answered")
    answers = [answer for scores in scores_by_model.values() for answer in scores.answers]
    here = binary_of(answers)
    known = {name: its and binary.get(name, True) for name, its in here.items()}
    decides = rule.function(known)
    values = {model: scores.values(k, decides) for model, scores in scores_by_model.items()}
    found: dict[str, Any] = {
        "problems": len(asked.pop()),
        "binary": all(is_binary(answer.rewards) for answer in answers),
        "right": decides,
        "right_in_words": rule.in_words(known),
        "measures": [
            _measure(name, {model: of_model[name] for model, of_model in values.items()})
            for name in values["A"]
            if all(name in of_model for of_model in values.values())  # one may have been stopped
            if name not in ("accuracy", f"reward/{TASK}") or _differs(name, values)
        ],
        "unfinished": {m: sum(a.unfinished for a in s.greedy) for m, s in scores_by_model.items()},
    }
    found["earned_nothing"] = {
        model: _faults(scores.greedy, decides, shown) for model, scores in scores_by_model.items()
    }
    if decides and "B" in scores_by_model:
        found["greedy_right"] = _agreement(scores_by_model["A"], scores_by_model["B"], decides)
    return found | {"per_problem": _per_problem(scores_by_model, decides)}


def _differs(name: str, values: Mapping[str, Mapping[str, Sequence[float]]]) -> bool:
    """Tell whether a measure says anything that the mean reward does not."""
    return any(of_model[name] != of_model["greedy"] for of_model in values.values())


def _measure(name: str, value_N: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    shares = all(0 <= value <= 1 for each_N in value_N.values() for value in each_N)
    found: dict[str, Any] = {"measure": name}
    for model, each_N in value_N.items():
        if not shares and len(each_N) == 1:  # on an unknown scale one tells nothing of the next
            found[model] = {"value": each_N[0], "low": None, "high": None}
        else:
            interval = intervals.share_interval if shares else intervals.mean_interval
            found[model] = asdict(interval(each_N))
    if "B" in value_N:
        pairs = zip(value_N["A"], value_N["B"], strict=True)
        between = intervals.difference_interval([a - b for a, b in pairs])
        between = between.within(-1, 1) if shares else between
        better = "A" if between.low > 0 else "B" if between.high < 0 else None
        found |= {"difference": asdict(between), "better": better}
    return found


def _faults(
    greedy: Sequence[ProblemScores], decides: str | None, shown: int
) -> list[dict[str, Any]]:
    """Count the faults of each kind and wording, the commonest first, with examples: of answers
    that are not right; where no function decides that, of those that earned nothing."""
    by_what = dict[tuple[Kind, str], list[AnswerFault]]()
    for scores in greedy:
        if scores.right(decides)[0] if decides else scores.rewards[0] > 0:
            continue
        for fault in scores.faults:
            by_what.setdefault((fault.kind, fault.what), []).append(fault)
    return [
        {
            "kind": kind,
            "what": what,
            "count": len(faults),
            "examples": [
                {"id": each.id, "expected": each.expected, "text": each.text}
                for each in faults[:shown]
            ],
        }
        for (kind, what), faults in sorted(by_what.items(), key=lambda item: -len(item[1]))
    ]


def _agreement(a: ModelScores, b: ModelScores, decides: str) -> dict[str, int]:
    both = zip(a.greedy, b.greedy, strict=True)
    pairs = [(x.right(decides)[0], y.right(decides)[0]) for x, y in both]
    names = {
        "both": (True, True),
        "only_a": (True, False),
        "only_b": (False, True),
        "neither": (False, False),
    }
    return {name: pairs.count(pair) for name, pair in names.items()}


def _per_problem(
    scores_by_model: Mapping[str, ModelScores], decides: str | None
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [{"id": a.problem_id} for a in scores_by_model["A"].greedy]
    for model, scores in scores_by_model.items():
        for row, one in zip(rows, scores.greedy, strict=True):
            is_right = one.right(decides)[0] if decides else None
            row[model] = {"greedy_right": is_right, "greedy_reward": one.rewards[0]}
        for row, some in zip(rows, scores.sampled, strict=bool(scores.sampled)):
            count = sum(some.right(decides)) if decides else None
            row[model] |= {"samples_right": count, "sample_rewards": list(some.rewards)}
    return rows
