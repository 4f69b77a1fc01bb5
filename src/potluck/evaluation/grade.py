"""Answers to problems that a model does not train on, graded, and the numbers that they give.
Accuracy is the mean reward, as training reports it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from potluck import intervals
from potluck.config import RunConfig
from potluck.episode import played, turns_in
from potluck.model import Reader
from potluck.rollout.base import Engine, GreedySampler, Progress, RolloutRequest, Sampler
from potluck.tasks import Split, Task
from potluck.tasks.base import environment_of, graded
from potluck.tasks.faults import Kind, fault_of
from potluck.types import Problem, is_right

MOST_SHOWN = 2_000
"""Characters of an answer that are kept, of its end."""
UNBOUNDED = 2**31
"""Tokens: only the model's context bounds an answer further."""


@dataclass(frozen=True, slots=True)
class SplitAccuracy:
    accuracy: float
    problems: int
    rewards: Mapping[str, float]
    """Mean of each reward function, before its weight; empty: the task's own grading alone."""
    is_partial: bool
    """True: some reward is neither 0 nor 1, so the mean is no share of right answers."""


@dataclass(frozen=True, slots=True)
class ProblemScores:
    """Rewards of a model's answers to one problem, in the order of writing."""

    problem_id: str
    rewards: tuple[float, ...]
    unfinished: int
    """Number of answers that were cut: they ran out of room, or of turns."""
    by_function: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Numbers of each reward function, before its weight; "task": the task's own grading."""
    faults: tuple["AnswerFault", ...] = ()
    """Answers that earned nothing."""


@dataclass(frozen=True, slots=True)
class AnswerFault:
    """An answer that earned nothing, and why."""

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

    def values(self, k: int) -> dict[str, list[float]]:
        """Return each measure's number for each problem."""
        values = {"greedy": [answers.rewards[0] for answers in self.greedy]}
        for each in dict.fromkeys((1, k)) if self.sampled else ():
            values[f"pass@{each}"] = [
                intervals.pass_at_k(count_right(answers), len(answers.rewards), each)
                for answers in self.sampled
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
) -> SplitAccuracy | None:
    """Answer the first ``count`` problems of ``split`` greedily; None if it has none."""
    if not (problems := first_problems(task, split, count)):
        return None
    answers = grade_samples(policy, engine, task, problems, GreedySampler(), 1, progress)
    count, names = len(answers), [*answers[0].by_function]
    means = {n: sum(each.by_function[n][0] for each in answers) / count for n in names}
    return SplitAccuracy(
        sum(each.rewards[0] for each in answers) / count,
        count,
        rewards=means if names != ["task"] else {},
        is_partial=any(each.rewards[0] not in (0, 1) for each in answers),
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
    for problem, c, text, reward in zip(asked, written, texts, rewards, strict=True):
        if reward <= 0:
            fault = fault_of(task, problem, c, text)
            end = text[-MOST_SHOWN:]
            told = AnswerFault(fault.kind, fault.what, problem.id, problem.answer[:MOST_SHOWN], end)
            faults.setdefault(problem.id, []).append(told)
    ended = [float(c.end == "stop") for c in written]
    parts = {id: {name: of(id, its) for name, its in by_function.items()} for id in by_id}
    return [
        ProblemScores(
            id,
            of(id, rewards),
            count - int(sum(of(id, ended))),
            parts[id],
            tuple(faults.get(id, ())),
        )
        for id in by_id
    ]


def count_right(answers: ProblemScores) -> int:
    return sum(map(is_right, answers.rewards))


def summary(
    scores_by_model: Mapping[str, ModelScores], k: int, *, shown: int = 1
) -> dict[str, Any]:
    """Return the measures of a split, and how two models, "A" and "B", compare, as data for JSON.
    Of the answers that earned nothing, ``shown`` of each kind are in it. Raise ValueError without
    problems, or where they are not the same."""
    asked = {tuple(a.problem_id for a in scores.greedy) for scores in scores_by_model.values()}
    if len(asked) != 1 or asked == {()}:
        raise ValueError(f"{len(asked)} lists of problems; expected one that all answered")
    values = {model: scores.values(k) for model, scores in scores_by_model.items()}
    answers = [a for scores in scores_by_model.values() for a in (*scores.greedy, *scores.sampled)]
    found: dict[str, Any] = {
        "problems": len(asked.pop()),
        "binary": all(reward in (0, 1) for a in answers for reward in a.rewards),
        "measures": [
            _measure(name, {model: of_model[name] for model, of_model in values.items()})
            for name in values["A"]
        ],
        "unfinished": {m: sum(a.unfinished for a in s.greedy) for m, s in scores_by_model.items()},
    }
    found["earned_nothing"] = {
        model: _faults(scores.greedy, shown) for model, scores in scores_by_model.items()
    }
    if "B" in scores_by_model:
        found["greedy_right"] = _agreement(scores_by_model["A"], scores_by_model["B"])
    return found | {"per_problem": _per_problem(scores_by_model)}


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


def _faults(greedy: Sequence[ProblemScores], shown: int) -> list[dict[str, Any]]:
    """Count the faults of each kind and wording, the commonest first, with examples."""
    by_what = dict[tuple[Kind, str], list[AnswerFault]]()
    for scores in greedy:
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


def _agreement(a: ModelScores, b: ModelScores) -> dict[str, int]:
    pairs = [(count_right(x), count_right(y)) for x, y in zip(a.greedy, b.greedy, strict=True)]
    names = {"both": (1, 1), "only_a": (1, 0), "only_b": (0, 1), "neither": (0, 0)}
    return {name: pairs.count(pair) for name, pair in names.items()}


def _per_problem(scores_by_model: Mapping[str, ModelScores]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [{"id": a.problem_id} for a in scores_by_model["A"].greedy]
    for model, scores in scores_by_model.items():
        for row, one in zip(rows, scores.greedy, strict=True):
            row[model] = {"greedy_right": bool(count_right(one)), "greedy_reward": one.rewards[0]}
        for row, some in zip(rows, scores.sampled, strict=bool(scores.sampled)):
            row[model] |= {"samples_right": count_right(some), "sample_rewards": list(some.rewards)}
    return rows
