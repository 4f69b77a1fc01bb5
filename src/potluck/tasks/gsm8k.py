"""GSM8K: grade-school problems in words, each with one number as its answer.

    question   "A robe takes 2 bolts of blue fiber and half that much white fiber. ..."
    answer     "It takes 2/2=<<2/2=1>>1 bolt of white fiber ... #### 3"

Only the number after the ``####`` is kept: it is what a completion is graded by. An id is the part
and the position in it, from 0: ``gsm8k/train/17``. The files are untrusted: see ``sources.py``. A
question may still hold chat markers such as ``<|im_end|>``: code that builds a prompt expects them.

Source: Cobbe et al. 2021, arXiv:2110.14168; 7,473 problems to train, 1,319 to test.
"""

import hashlib
import reprlib
from collections.abc import Sequence
from typing import Any, Literal, get_args

from potluck.tasks.base import HeldTask, TaskError, TaskOptions, binary_rewards
from potluck.tasks.grading import answer_in, one_number, prompt_for_tags
from potluck.tasks.math.pool import require_algebra
from potluck.tasks.sources import benchmark_rows, printable_text_of, text_of
from potluck.tasks.table import right_by
from potluck.types import Completion, Problem

Part = Literal["train", "test"]
NumberGrading = Literal["number", "math-verify"]

SYSTEM_PROMPT = prompt_for_tags("the number alone, without words or units", noun="number")
HUB_NAME = "openai/gsm8k"
VALIDATION_SIZE = 512
FILES = "train.jsonl and test.jsonl of GSM8K"


class Gsm8kOptions(TaskOptions, frozen=True, kw_only=True, tag_field="name", tag="gsm8k"):
    """GSM8K: word problems whose answer is one number."""

    path: str = ""
    """Folder with train.jsonl and test.jsonl; empty: from the Hub (extra ``data``)."""
    validation: Part = "train"
    """File that the validation problems come from; the paper takes "test"."""
    grading: NumberGrading = "number"
    """Rule for a right answer. "number": one decimal number (docs/grading.md); "math-verify": as
    that library decides, to compare with other projects (extra ``math``)."""
    system_prompt: str = ""
    """System prompt instead of the built-in one, which asks for <think> and <answer> tags."""

    def make(self) -> "Gsm8k":
        return Gsm8k(self)

    @property
    def hub_name(self) -> str:
        return "" if self.path else HUB_NAME

    @property
    def notes(self) -> tuple[str, ...]:
        if self.validation == "train":
            return ()
        note = "validation is GSM8K's test set, as in the paper: what is chosen by it needs another"
        return (f"{note} test",)


class Gsm8k(HeldTask):
    """The problems of GSM8K, answered inside tags; 1.0 for format and number both right.

    Validation is held out of ``train.jsonl`` by default, so that choices made by looking at it
    do not use up the test set: the 512 problems whose sha256 of id and question is smallest.
    ``validation="test"`` is what the paper does: the first 512 of ``test.jsonl``, and all of
    ``train.jsonl`` to train on. ``problem`` knows every problem of both files either way.
    """

    def __init__(self, options: Gsm8kOptions) -> None:
        """Read the folder, or the Hub where none is named; raise TaskError for bad data."""
        validation, self._grading = options.validation, options.grading
        if self._grading == "math-verify":
            require_algebra()
        parts = {part: _pairs(options.path, part) for part in get_args(Part)}
        system = options.system_prompt or SYSTEM_PROMPT
        everything = [
            Problem(f"gsm8k/{part}/{i}", question, gold, system)
            for part, pairs in parts.items()
            for i, (question, gold) in enumerate(pairs)
        ]
        train, test = everything[: len(parts["train"])], everything[len(parts["train"]) :]
        held_out = _held_out(train) if validation == "train" else test[:VALIDATION_SIZE]
        avoid = {problem.id for problem in held_out}
        own = [problem.id for problem in train if problem.id not in avoid]
        number = "math-verify 0.9" if self._grading == "math-verify" else "one number, maybe boxed"
        rules = f"gsm8k 3: the tags in order, {number}; validation from {validation}"
        super().__init__(rules, everything, {"train": own, "validation": [p.id for p in held_out]})

    def rewards(
        self, problems: Sequence[Problem], completions: Sequence[Completion], texts: Sequence[str]
    ) -> list[float]:
        right = right_by(self._grading, problems, list(map(answer_in, texts)))
        return binary_rewards(right, completions)


def _held_out(train: Sequence[Problem]) -> list[Problem]:
    """Choose the problems of the smallest hashes: these do not depend on the order of a shuffle."""
    if len(train) <= VALIDATION_SIZE:
        raise TaskError(
            f"gsm8k has {len(train)} problems to train on, of which {VALIDATION_SIZE} would be "
            f"held out for validation; give more, or set task.validation = 'test'"
        )
    hashed = sorted(train, key=lambda p: hashlib.sha256((p.id + p.question).encode()).digest())
    return hashed[:VALIDATION_SIZE]


def _pairs(path: str, part: Part) -> list[tuple[str, str]]:
    line, words = '{"question": ..., "answer": ...}', "a problem in words"
    rows = benchmark_rows(path, part, hub_name=HUB_NAME, subset="main", files=FILES, line=line)
    return [
        (printable_text_of(row, "question", where, expected=words), _gold(row, where))
        for where, row in rows
    ]


def _gold(row: Any, where: str) -> str:
    answer = text_of(row, "answer", where)
    _, mark, gold = answer.partition("####")
    if not mark:
        end = reprlib.repr(answer[-30:])
        raise TaskError(f"{where} has an 'answer' that ends in {end}; expected '#### 18'")
    if one_number(gold) is None:
        found = reprlib.repr(gold)
        raise TaskError(f"{where} has {found} after the '####'; expected one number, as '#### 18'")
    return gold.strip().replace(",", "")
