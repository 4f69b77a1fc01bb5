"""From a row of somebody's data to a problem.

A question is a text, or messages as TRL has them: at most one of the role "system", then
exactly one of "user". An answer is a text or a number. What is neither is refused in one
line with its place: data sets are large, and nobody reads them before training.
"""

import json
import reprlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from potluck.tasks.base import TaskError
from potluck.tasks.grading import one_number
from potluck.tasks.reading import printable_text_of
from potluck.types import Problem

Grading = Literal["number", "exact", "math"]

ALONE: dict[Grading, str] = {
    "number": "the number alone, without words or units",
    "exact": "the answer alone, without further words",
    "math": "the number or expression alone, without words",
}
SYSTEM_PROMPTS: dict[Grading, str] = {
    grading: "You are an assistant who solves a user's problem step by step. First reason inside "
    "<think></think> tags, then give the final answer inside <answer></answer> tags: "
    f"{alone}. Write nothing outside the tags, like this: "
    "<think>your steps</think><answer>your answer</answer>"
    for grading, alone in ALONE.items()
}
"""What a model is told where ``tags`` are asked for and neither recipe nor row says better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Where question and answer stand in a row, and when a completion is right."""

    question: str = "question"
    answer: str = "answer"
    """Empty: rows have none, so only reward functions of one's own can grade."""
    answer_after: str = ""
    """Only what follows this mark in the answer column is the answer: GSM8K's "####"."""
    grading: Grading = "number"
    """``number``: both are one decimal number, and the same; ``exact``: the same text, space
    around it aside; ``math``: math-verify finds them equal, in worker processes."""
    tags: bool = True
    """Whether the answer has to stand in <think></think><answer></answer>, and nothing outside;
    else the whole completion is the answer."""
    system_prompt: str = ""
    """Replaces a row's own, and the built-in one that asks for the tags."""


def problem_of(id: str, row: Any, where: str, rules: Rules) -> Problem:
    """The problem in ``row``, which stands at ``where``.

    Raises:
        TaskError: it is no row, or its columns are not there or not what ``rules`` need.
    """
    if not isinstance(row, dict):
        found = reprlib.repr(row)
        raise TaskError(f"{where} is {found}; expected an object with a question and an answer")
    system, question = _asked(_column(row, rules.question, where), rules.question, where)
    built_in = SYSTEM_PROMPTS[rules.grading] if rules.tags and rules.answer else ""
    answer = _answer(row, where, rules) if rules.answer else ""
    return Problem(id, question, answer, rules.system_prompt or system or built_in)


def _column(row: Mapping[str, Any], key: str, where: str) -> Any:
    if key not in row:
        there = ", ".join(name[:40] for name in islice(row, 20)) or "none"
        raise TaskError(f"{where} has no column {key!r}; it has {there}")
    return row[key]


def _asked(value: Any, key: str, where: str) -> tuple[str, str]:
    """(system prompt, question) of a text or of messages."""
    if isinstance(value, str):
        return "", _printable(value, key, where)
    messages = value if isinstance(value, list) else [value]
    if not all(isinstance(m, dict) and isinstance(m.get("content"), str) for m in messages):
        found = reprlib.repr(value)
        raise TaskError(f"{where} has {found} as {key!r}; expected a text, or messages")
    said = [(m.get("role"), _printable(m["content"], key, where)) for m in messages]
    if [role for role, _ in said] not in (["user"], ["system", "user"]):
        roles = reprlib.repr([role for role, _ in said])
        raise TaskError(
            f"{where} has messages of {roles} as {key!r}; expected one of 'user', and none or one "
            f"of 'system' before it"
        )
    return (said[0][1] if len(said) == 2 else ""), said[-1][1]


def _printable(text: str, key: str, where: str) -> str:
    return printable_text_of({key: text}, key, where, expected="a problem")


def _answer(row: Mapping[str, Any], where: str, rules: Rules) -> str:
    value = _column(row, rules.answer, where)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        found = reprlib.repr(value)
        raise TaskError(f"{where} has {found} as {rules.answer!r}; expected a text or a number")
    text = str(value)
    if rules.answer_after:
        _, mark, text = text.partition(rules.answer_after)
        if not mark:
            raise TaskError(
                f"{where} has an {rules.answer!r} without {rules.answer_after!r}; expected it "
                f"before the answer, or drop task.answer_after"
            )
    if not text.strip():
        raise TaskError(f"{where} has an empty {rules.answer!r}; expected what is right")
    if rules.grading == "number" and one_number(text) is None:
        raise TaskError(
            f"{where} has {reprlib.repr(text)} as {rules.answer!r}; grading = 'number' needs one "
            f"decimal number; choose task.grading = 'exact' or 'math'"
        )
    return text.strip()


def plain_columns(row: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """What of a row is JSON, and that as one line: images and dates of the Hub are left out."""
    lines = {}
    for key, value in row.items():
        with suppress(TypeError, ValueError):
            lines[key] = json.dumps([key, value], sort_keys=True)
    return {key: row[key] for key in lines}, "".join(sorted(lines.values()))
