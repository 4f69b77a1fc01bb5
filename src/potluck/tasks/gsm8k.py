"""GSM8K: grade-school problems in words, each with one number as its answer.

    question   "A robe takes 2 bolts of blue fiber and half that much white fiber. ..."
    answer     "It takes 2/2=<<2/2=1>>1 bolt of white fiber ... #### 3"

Only the number after the ``####`` is kept: it is what a completion is graded by. An id
is the part and the position in it, from 0: ``gsm8k/train/17``.

The files are untrusted. They are read line by line with a limit, and what is not a
problem is refused with its place. A question may still hold any printable text,
chat markers such as ``<|im_end|>`` too: whoever builds a prompt must expect them.

Source: Cobbe et al. 2021, arXiv:2110.14168; 7,473 problems to train, 1,319 to test.
"""

import hashlib
import reprlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from potluck.tasks.base import Split, TaskError, binary_rewards, digest_of, look_up
from potluck.tasks.grading import answer_in, one_number, same_number
from potluck.tasks.reading import (
    Row,
    folder_at,
    hub_rows,
    json_lines,
    printable_text_of,
    text_of,
)
from potluck.types import Completion, Problem

Part = Literal["train", "test"]

SYSTEM_PROMPT = (
    "You are an assistant who solves a user's problem step by step. First reason inside "
    "<think></think> tags, then give the final number inside <answer></answer> tags: the "
    "number alone, without words or units. Write nothing outside the tags, like this: "
    "<think>your steps</think><answer>your number</answer>"
)

HUB_NAME = "openai/gsm8k"
VALIDATION_SIZE = 512
FILES = "train.jsonl and test.jsonl of GSM8K"


class Gsm8k:
    """The problems of GSM8K, answered inside tags; 1.0 for format and number both right.

    Validation is held out of ``train.jsonl`` by default, so that choices made by
    looking at it do not use up the test set: the 512 problems whose sha256 of id and
    question is smallest, which are then no training problems. ``validation="test"`` is
    what the paper does: the first 512 of ``test.jsonl``, and all of ``train.jsonl`` to
    train on. ``problem`` knows every problem of both files either way.

    There is no out-of-distribution split.
    """

    def __init__(
        self, *, path: str = "", validation: Part = "train", system_prompt: str = ""
    ) -> None:
        """Reads the folder ``path``, or the Hub where it is empty.

        Raises:
            TaskError: data that is missing, cannot be read, or holds no such problems.
        """
        if validation not in get_args(Part):
            raise TaskError(f"task.validation is {validation!r}; choose one of train, test")
        parts = _read_folder(path) if path else _read_hub()
        for part, pairs in parts.items():
            if not pairs:
                source = Path(path, f"{part}.jsonl") if path else f"{HUB_NAME} {part}"
                raise TaskError(f"{source} holds no problem; expected one in every line")
        system = system_prompt or SYSTEM_PROMPT
        everything = [
            Problem(f"gsm8k/{part}/{i}", question, gold, system)
            for part, pairs in parts.items()
            for i, (question, gold) in enumerate(pairs)
        ]
        self._problems = {problem.id: problem for problem in everything}
        train, test = everything[: len(parts["train"])], everything[len(parts["train"]) :]
        held_out = _held_out(train) if validation == "train" else test[:VALIDATION_SIZE]
        avoid = {problem.id for problem in held_out}
        self._ids: dict[Split, list[str]] = {
            "train": [problem.id for problem in train if problem.id not in avoid],
            "validation": [problem.id for problem in held_out],
            "out-of-distribution": [],
        }
        rules = f"gsm8k 2: the tags in order, one number, maybe boxed; validation from {validation}"
        self.digest = digest_of(rules, everything)

    def ids(self, split: Split) -> Sequence[str]:
        return self._ids[split]

    def problem(self, id: str) -> Problem:
        return look_up(self._problems, id, example="gsm8k/train/17")

    def rewards(
        self,
        problems: Sequence[Problem],
        completions: Sequence[Completion],
        texts: Sequence[str],
    ) -> list[float]:
        correct = [is_right(p, text) for p, text in zip(problems, texts, strict=True)]
        return binary_rewards(correct, completions)


def is_right(problem: Problem, text: str) -> bool:
    """Whether ``text`` keeps the format and its answer is the problem's number."""
    answer = answer_in(text)
    return answer is not None and same_number(problem.answer, answer)


def _held_out(train: Sequence[Problem]) -> list[Problem]:
    """Which they are depends on each problem alone, not on the order of a shuffle."""
    if len(train) <= VALIDATION_SIZE:
        raise TaskError(
            f"gsm8k has {len(train)} problems to train on, of which {VALIDATION_SIZE} would be "
            f"held out for validation; give more, or set task.validation = 'test'"
        )

    def luck(problem: Problem) -> bytes:
        return hashlib.sha256((problem.id + problem.question).encode()).digest()

    return sorted(train, key=luck)[:VALIDATION_SIZE]


def _read_folder(path: str) -> dict[Part, list[tuple[str, str]]]:
    folder = folder_at(path, expected=f"one with {FILES}")
    file, line = f"{FILES} in task.path", '{"question": ..., "answer": ...}'
    return {
        part: _pairs(json_lines(folder / f"{part}.jsonl", file=file, line=line))
        for part in get_args(Part)
    }


def _read_hub() -> dict[Part, list[tuple[str, str]]]:
    way_out = f"or download {FILES} and set task.path to their folder"
    return {
        part: _pairs(hub_rows(HUB_NAME, "main", part, empty="task.path is empty", way_out=way_out))
        for part in get_args(Part)
    }


def _pairs(rows: Iterable[Row]) -> list[tuple[str, str]]:
    """Question and gold number of every row."""
    return [
        (
            printable_text_of(row, "question", where, expected="a problem in words"),
            _gold(row, where),
        )
        for where, row in rows
    ]


def _gold(row: Any, where: str) -> str:
    answer = text_of(row, "answer", where)
    _, mark, gold = answer.partition("####")
    if not mark:
        found = reprlib.repr(answer[-30:])
        raise TaskError(f"{where} has an 'answer' that ends in {found}; expected '#### 18'")
    if one_number(gold) is None:
        found = reprlib.repr(gold)
        raise TaskError(f"{where} has {found} after the '####'; expected one number, as '#### 18'")
    return gold.strip().replace(",", "")
