"""Benchmarks: GSM8K, and MATH-500 for the end of a run. Their files are untrusted: ``sources.py``.

    gsm8k      answer   "It takes 2/2=<<2/2=1>>1 bolt of white fiber ... #### 3": the 3 is kept
    math500    answer   "\\left( 3, \\frac{\\pi}{2} \\right)"

MATH-500 has nothing to train on or to validate with, so it stands under ``[out_of_distribution]``.
An id ends in the position in its file, from 0: ``gsm8k/train/17``, ``math500/17``.

Sources: Cobbe et al. 2021, arXiv:2110.14168, 7,473 problems to train, 1,319 to test; Hendrycks et
al. 2021, arXiv:2103.03874, the 500 of Lightman et al. 2023, arXiv:2305.20050.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal, get_args

from msgspec import structs

from potluck.fields import Count
from potluck.tasks.base import Split, TaskError, TaskOptions
from potluck.tasks.grading import LastAnswer, prompt_for_tags
from potluck.tasks.json_rows import SourceRow
from potluck.tasks.math.pool import MathGrading, require_algebra
from potluck.tasks.sources import FILES, file_rows, hub_rows
from potluck.tasks.table import Answered, TableOptions, held_out, problem_of
from potluck.types import Problem

Part = Literal["train", "test"]
NumberGrading = Literal["number", "math-verify"]

GSM8K_PROMPT = prompt_for_tags("the number alone, without words or units", noun="number")
MATH500_PROMPT = prompt_for_tags(
    "the answer alone, in its simplest form, as LaTeX where it is more than a number"
)
BOX_PROMPT = r"Solve the problem step by step, and put the final answer into \boxed{}."
VALIDATION_SIZE = 512


class BenchmarkOptions(TaskOptions, frozen=True, kw_only=True):
    """Keys of a benchmark."""

    path: str = ""
    """Folder with test.jsonl, and for GSM8K train.jsonl; empty: from the Hub (extra ``data``)."""
    system_prompt: str = ""
    """System prompt instead of the built-in one, which asks for <think> and <answer> tags; without
    tags MATH-500's asks for a box, and GSM8K has none."""
    examples: str = ""
    """File with worked examples, which stand before each question as ``Question: ...`` and
    ``Answer: ...`` (docs/tasks.md): rows as the task's own, such as GSM8K's train.jsonl."""
    shots: Count = 4
    """Number of ``examples`` before each question: the first that are not the problem itself, and
    no problem to validate or to test with."""
    tags: bool = True
    """True: the answer stands in <think></think><answer></answer>, with nothing outside; False: it
    is the last number of a completion (GSM8K), or what its last ``\\boxed{}`` holds (MATH-500)."""

    home: ClassVar[tuple[str, str]]
    """Name on the Hub, and the subset there."""

    @property
    def hub_name(self) -> str:
        return "" if self.path else self.home[0]

    def problems(self, part: Part, ids: str, rules: TableOptions, files: str) -> list[Problem]:
        """Read a file of the folder, or of the Hub; errors say what ``files`` are expected."""
        if self.path:
            if not (folder := Path(self.path).expanduser()).is_dir():
                raise TaskError(
                    f"task.path: there is no folder {folder.absolute()}; expected one with {files}"
                )
            wanted = f"{files} in task.path"
            rows = file_rows(str(folder / f"{part}.jsonl"), wanted, names=[rules.question])
        else:
            way_out = f"or download {files} and set task.path to the folder"
            rows = hub_rows(*self.home, part, empty="task.path is empty", way_out=way_out)
        return [problem_of(f"{ids}/{i}", row, where, rules) for i, (where, row) in enumerate(rows)]

    def example_rows(self, rules: TableOptions) -> Iterable[SourceRow]:
        """Read the rows of ``examples``, if there are any."""
        if not self.examples:
            return ()
        return file_rows(self.examples, f"{FILES} in task.examples", names=[rules.question])


class Gsm8kOptions(BenchmarkOptions, frozen=True, kw_only=True, tag_field="name", tag="gsm8k"):
    """GSM8K: word problems whose answer is one number."""

    validation: Part = "train"
    """File that the validation problems come from; the paper takes "test"."""
    grading: NumberGrading = "number"
    """Rule for a right answer. "number": one decimal number (docs/grading.md); "math-verify": as
    that library decides, to compare with other projects (extra ``math``)."""

    home: ClassVar[tuple[str, str]] = "openai/gsm8k", "main"

    def make(self) -> Answered:
        """Build it. Validation is held out of ``train.jsonl``, so that the test set is not used up,
        or is the first 512 of ``test.jsonl``; ``problem`` knows every problem of both."""
        if self.grading == "math-verify":
            require_algebra()
        prompt = self.system_prompt or (GSM8K_PROMPT if self.tags else "")
        rules = TableOptions(
            answer_after="####",
            tags=self.tags,
            system_prompt=prompt,
            examples=self.examples,
            shots=self.shots,
        )
        files = "train.jsonl and test.jsonl of GSM8K"
        train, test = (
            [
                replace(p, answer=p.answer.replace(",", ""))
                for p in self.problems(part, f"gsm8k/{part}", rules, files)
            ]
            for part in get_args(Part)
        )
        splits: dict[Split, list[Problem]] = {"train": train, "validation": test[:VALIDATION_SIZE]}
        if self.validation == "train":
            splits = held_out("gsm8k", train, VALIDATION_SIZE, lambda p: p.id + p.question)
        number = "math-verify 0.9" if self.grading == "math-verify" else "one number, maybe boxed"
        form = "4: the tags in order" if self.tags else "1 without tags: the last number"
        version = f"gsm8k {form}, {number}; validation from {self.validation}"
        last: LastAnswer = "" if self.tags else "number"
        graded = structs.replace(rules, grading=self.grading, last_answer=last)
        examples = self.example_rows(rules)
        return Answered(graded, version, splits, [*train, *test], examples=examples)

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

    home: ClassVar[tuple[str, str]] = "HuggingFaceH4/MATH-500", ""

    def make(self) -> Answered:
        require_algebra()
        plain = "" if self.examples else BOX_PROMPT
        rules = TableOptions(
            question="problem",
            grading=self.grading,
            system_prompt=self.system_prompt or (MATH500_PROMPT if self.tags else plain),
            tags=self.tags,
            last_answer="" if self.tags else "box",
            examples=self.examples,
            shots=self.shots,
            worked="solution",
        )
        problems = self.problems("test", "math500", rules, "test.jsonl of MATH-500")
        number, finished = (4, "one finished answer, ") if self.grading == "math" else (2, "")
        form = f"{number}: the tags in order" if self.tags else "1 without tags: the last box"
        version = f"math500 {form}, {finished}math-verify 0.9"
        splits: dict[Split, list[Problem]] = {"out-of-distribution": problems}
        return Answered(rules, version, splits, examples=self.example_rows(rules))
