"""Worked examples before a question, as text that every model can read and go on with:

    Question: Tom has 9 eggs and finds 9 more. How many has he?
    Answer: 9 + 9 = 18. #### 18

    Question: Ann has 5 eggs and finds 2 more. How many has she?
    Answer:

The examples end the system text, and the question is what stands behind: where a model has no chat
template the two make the text above, with one they are a message of the system and one of the user.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from potluck.tasks.base import normalised
from potluck.types import Problem


class Example(NamedTuple):
    """A question and its answer, as a model would write it."""

    question: str
    answer: str


def with_examples(problem: Problem, examples: Sequence[Example]) -> Problem:
    """Put examples before a problem's question."""
    written = [f"{_asked(question)} {answer}" for question, answer in examples]
    system = "\n\n".join(filter(None, [problem.system, *written]))
    return replace(problem, question=_asked(problem.question), system=system)


def examples_for(problem: Problem, candidates: Sequence[Example], count: int) -> list[Example]:
    """Choose the first ``count`` examples that are not the problem itself."""
    asked = normalised(problem.question)
    others = [each for each in candidates if normalised(each.question) != asked]
    return others[:count]


def _asked(question: str) -> str:
    return f"Question: {question}\nAnswer:"
