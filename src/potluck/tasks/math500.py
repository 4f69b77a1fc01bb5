"""MATH-500: competition problems, each with a short exact answer in LaTeX.

    problem    "Convert the point $(0,3)$ in rectangular coordinates to polar ..."
    answer     "\\left( 3, \\frac{\\pi}{2} \\right)"

All of it is out of distribution: there is nothing to train on and nothing to validate
with, so it stands under ``[out_of_distribution]`` beside another task. An id is the
position in the file, from 0: ``math500/17``. Files are untrusted and read as GSM8K's are.

Source: Hendrycks et al. 2021, arXiv:2103.03874; the 500 of Lightman et al. 2023,
arXiv:2305.20050.
"""

from collections.abc import Iterable, Sequence

from potluck.tasks.base import Split, TaskError, binary_rewards, digest_of, look_up
from potluck.tasks.grading import answer_in
from potluck.tasks.math_workers import Ask, are_right, require_algebra
from potluck.tasks.reading import (
    Row,
    folder_at,
    hub_rows,
    json_lines,
    printable_text_of,
)
from potluck.types import Completion, Problem

SYSTEM_PROMPT = (
    "You are an assistant who solves a user's problem step by step. First reason inside "
    "<think></think> tags, then give the final answer inside <answer></answer> tags: the answer "
    "alone, in its simplest form, as LaTeX where it is more than a number. Write nothing outside "
    "the tags, like this: <think>your steps</think><answer>your answer</answer>"
)

HUB_NAME = "HuggingFaceH4/MATH-500"
FILE = "test.jsonl of MATH-500"


class Math500:
    """The problems of MATH-500, answered inside tags; 1.0 for format and answer both right.

    What is right, ``math_grading`` says; it asks math-verify where reading does not decide.
    """

    def __init__(self, *, path: str = "", system_prompt: str = "") -> None:
        """Reads the folder ``path``, or the Hub where it is empty.

        Raises:
            TaskError: math-verify or the data is missing, cannot be read, or holds no problem.
        """
        require_algebra()
        pairs = _pairs(_read_folder(path) if path else _read_hub())
        if not pairs:
            raise TaskError(f"{path or HUB_NAME} holds no problem; expected {FILE}")
        system = system_prompt or SYSTEM_PROMPT
        self._problems = {
            f"math500/{i}": Problem(f"math500/{i}", question, gold, system)
            for i, (question, gold) in enumerate(pairs)
        }
        self.digest = digest_of(
            "math500 1: the tags in order, one finished answer, math-verify 0.9",
            self._problems.values(),
        )

    def ids(self, split: Split) -> Sequence[str]:
        return list(self._problems) if split == "out-of-distribution" else []

    def problem(self, id: str) -> Problem:
        return look_up(self._problems, id, example="math500/17")

    def rewards(
        self,
        problems: Sequence[Problem],
        completions: Sequence[Completion],
        texts: Sequence[str],
    ) -> list[float]:
        triples = zip(problems, completions, texts, strict=True)
        # What earns nothing anyway is not read: algebra is the slow part.
        answers = [answer_in(text) if c.end == "stop" else None for _, c, text in triples]
        asks = [Ask(p.question, p.answer, a) for p, a in zip(problems, answers, strict=True)]
        return binary_rewards(are_right(asks), completions)


def _read_folder(path: str) -> Iterable[Row]:
    folder = folder_at(path, expected=f"one with {FILE}")
    line = '{"problem": ..., "answer": ...}'
    return json_lines(folder / "test.jsonl", file=f"{FILE} in task.path", line=line)


def _read_hub() -> Iterable[Row]:
    way_out = f"or download {FILE} and set task.path to its folder"
    return hub_rows(HUB_NAME, None, "test", empty="task.path is empty", way_out=way_out)


def _pairs(rows: Iterable[Row]) -> list[tuple[str, str]]:
    """Question and gold of every row."""
    return [
        (
            printable_text_of(row, "problem", where, expected="a problem"),
            printable_text_of(row, "answer", where, expected="the right answer").strip(),
        )
        for where, row in rows
    ]
