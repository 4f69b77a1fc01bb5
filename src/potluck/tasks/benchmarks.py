"""Benchmarks: GSM8K, and MATH-500 for the end of a run. Their files are untrusted: ``sources.py``.

    gsm8k      question   "A robe takes 2 bolts of blue fiber and half that much white fiber. ..."
               answer     "It takes 2/2=<<2/2=1>>1 bolt of white fiber ... #### 3"
    math500    problem    "Convert the point $(0,3)$ in rectangular coordinates to polar ..."
               answer     "\\left( 3, \\frac{\\pi}{2} \\right)"

Of GSM8K's answers only the number after the ``####`` is kept. MATH-500 has nothing to train on or
to validate with, so it stands under ``[out_of_distribution]``. An id ends in the position in its
file, from 0: ``gsm8k/train/17``, ``math500/17``.

Sources: Cobbe et al. 2021, arXiv:2110.14168, 7,473 problems to train, 1,319 to test; Hendrycks et
al. 2021, arXiv:2103.03874, the 500 of Lightman et al. 2023, arXiv:2305.20050.
"""

import hashlib
import reprlib
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, get_args

from potluck.tasks.base import HeldTask, TaskError, TaskOptions, binary_rewards
from potluck.tasks.grading import answer_in, one_number, prompt_for_tags
from potluck.tasks.math.pool import MathGrading, require_algebra
from potluck.tasks.sources import benchmark_rows, text_of
from potluck.tasks.table import right_by
from potluck.types import Completion, Problem

Part = Literal["train", "test"]
NumberGrading = Literal["number", "math-verify"]

GSM8K_PROMPT = prompt_for_tags("the number alone, without words or units", noun="number")
MATH500_PROMPT = prompt_for_tags(
    "the answer alone, in its simplest form, as LaTeX where it is more than a number"
)
VALIDATION_SIZE = 512


class BenchmarkOptions(TaskOptions, frozen=True, kw_only=True):
    """Keys of a benchmark."""

    path: str = ""
    """Folder with test.jsonl, and for GSM8K train.jsonl; empty: from the Hub (extra ``data``)."""
    system_prompt: str = ""
    """System prompt instead of the built-in one, which asks for <think> and <answer> tags."""

    home: ClassVar[str]
    """Name on the Hub."""

    @property
    def hub_name(self) -> str:
        return "" if self.path else self.home


class Gsm8kOptions(BenchmarkOptions, frozen=True, kw_only=True, tag_field="name", tag="gsm8k"):
    """GSM8K: word problems whose answer is one number."""

    validation: Part = "train"
    """File that the validation problems come from; the paper takes "test"."""
    grading: NumberGrading = "number"
    """Rule for a right answer. "number": one decimal number (docs/grading.md); "math-verify": as
    that library decides, to compare with other projects (extra ``math``)."""

    home: ClassVar[str] = "openai/gsm8k"

    def make(self) -> "Gsm8k":
        return Gsm8k(self)

    @property
    def notes(self) -> tuple[str, ...]:
        if self.validation == "train":
            return ()
        note = "validation is GSM8K's test set, as in the paper: what is chosen by it needs another"
        return (f"{note} test",)


class Math500Options(BenchmarkOptions, frozen=True, kw_only=True, tag_field="name", tag="math500"):
    """MATH-500: problems for ``[out_of_distribution]`` only, none to train on (extra ``math``)."""

    grading: MathGrading = "math"
    """Rule for a right answer. "math": one finished answer in the reference's form; "math-verify":
    as that library decides, to compare with other projects. See docs/grading.md."""

    home: ClassVar[str] = "HuggingFaceH4/MATH-500"

    def make(self) -> "Math500":
        return Math500(self)


class Gsm8k(HeldTask):
    """The problems of GSM8K, answered inside tags; 1.0 for format and number both right.

    Validation is held out of ``train.jsonl``, so that the test set is not used up; with
    ``validation="test"``, as in the paper, it is the first 512 of ``test.jsonl``. ``problem`` knows
    every problem of both files either way.
    """

    def __init__(self, options: Gsm8kOptions) -> None:
        """Read the folder, or the Hub where none is named; raise TaskError for bad data."""
        validation, self._grading = options.validation, options.grading
        if self._grading == "math-verify":
            require_algebra()
        parts = {part: _pairs(options.path, part) for part in get_args(Part)}
        system = options.system_prompt or GSM8K_PROMPT
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
    hub_name, files = Gsm8kOptions.home, "train.jsonl and test.jsonl of GSM8K"
    rows = benchmark_rows(path, part, hub_name=hub_name, subset="main", files=files, line=line)
    return [
        (text_of(row, "question", where, expected=words), _gold(row, where)) for where, row in rows
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


class Math500(HeldTask):
    """The problems of MATH-500, answered inside tags; 1.0 for format and answer both right."""

    def __init__(self, options: Math500Options) -> None:
        """Read the folder, or the Hub where none is named. Raise TaskError where math-verify or the
        data is missing, unreadable, or without a problem."""
        require_algebra()
        self._grading, line = options.grading, '{"problem": ..., "answer": ...}'
        files = "test.jsonl of MATH-500"
        rows = benchmark_rows(options.path, "test", hub_name=options.home, files=files, line=line)
        problems = [
            Problem(
                f"math500/{i}",
                text_of(row, "problem", where, expected="a problem"),
                text_of(row, "answer", where, expected="the right answer").strip(),
                options.system_prompt or MATH500_PROMPT,
            )
            for i, (where, row) in enumerate(rows)
        ]
        version, finished = (2, "one finished answer, ") if self._grading == "math" else (1, "")
        rules = f"math500 {version}: the tags in order, {finished}math-verify 0.9"
        super().__init__(rules, problems, {"out-of-distribution": [p.id for p in problems]})

    def rewards(
        self, problems: Sequence[Problem], completions: Sequence[Completion], texts: Sequence[str]
    ) -> list[float]:
        # A completion that earns nothing anyway is not read: algebra is the slow part.
        pairs = zip(completions, texts, strict=True)
        answers = [answer_in(text) if c.end == "stop" else None for c, text in pairs]
        return binary_rewards(right_by(self._grading, problems, answers), completions)
