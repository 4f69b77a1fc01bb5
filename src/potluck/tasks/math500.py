"""MATH-500: competition problems, each with a short exact answer in LaTeX.

    problem    "Convert the point $(0,3)$ in rectangular coordinates to polar ..."
    answer     "\\left( 3, \\frac{\\pi}{2} \\right)"

There is nothing to train on and nothing to validate with, so it stands under
``[out_of_distribution]`` beside another task. An id is the position in the file, from 0:
``math500/17``. Files are untrusted and read as GSM8K's are.

Source: Hendrycks et al. 2021, arXiv:2103.03874; the 500 of Lightman et al. 2023, arXiv:2305.20050.
"""

from collections.abc import Sequence

from potluck.tasks.base import HeldTask, TaskOptions, binary_rewards
from potluck.tasks.grading import answer_in, prompt_for_tags
from potluck.tasks.math.pool import MathGrading, require_algebra
from potluck.tasks.sources import benchmark_rows, printable_text_of
from potluck.tasks.table import right_by
from potluck.types import Completion, Problem

SYSTEM_PROMPT = prompt_for_tags(
    "the answer alone, in its simplest form, as LaTeX where it is more than a number"
)
HUB_NAME = "HuggingFaceH4/MATH-500"
FILE = "test.jsonl of MATH-500"


class Math500Options(TaskOptions, frozen=True, kw_only=True, tag_field="name", tag="math500"):
    """MATH-500: problems for ``[out_of_distribution]`` only, none to train on (extra ``math``)."""

    path: str = ""
    """Folder with test.jsonl; empty: from the Hub (extra ``data``)."""
    grading: MathGrading = "math"
    """Rule for a right answer. "math": one finished answer in the reference's form; "math-verify":
    as that library decides, to compare with other projects. See docs/grading.md."""
    system_prompt: str = ""
    """System prompt instead of the built-in one, which asks for <think> and <answer> tags."""

    def make(self) -> "Math500":
        return Math500(self)

    @property
    def hub_name(self) -> str:
        return "" if self.path else HUB_NAME


class Math500(HeldTask):
    """The problems of MATH-500, answered inside tags; 1.0 for format and answer both right."""

    def __init__(self, options: Math500Options) -> None:
        """Read the folder, or the Hub where none is named. Raise TaskError where math-verify or the
        data is missing, unreadable, or without a problem."""
        require_algebra()
        path, self._grading = options.path, options.grading
        line = '{"problem": ..., "answer": ...}'
        rows = benchmark_rows(path, "test", hub_name=HUB_NAME, subset=None, files=FILE, line=line)
        problems = [
            Problem(
                f"math500/{i}",
                printable_text_of(row, "problem", where, expected="a problem"),
                printable_text_of(row, "answer", where, expected="the right answer").strip(),
                options.system_prompt or SYSTEM_PROMPT,
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
