"""Your own rows as a task: the lines of a JSON file, or a data set of the Hub.

    {"prompt": "What is 9 + 9?", "solution": "18", "level": 1}

The recipe says which columns hold the question and the answer, and how an answer is
compared. All columns of a row stay with its problem, for a reward function of your own
(``custom.py``). An id is the part and the row's position in it, from 0: ``jsonl/train/17``.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from potluck.tasks.base import Split, TaskError, binary_rewards, digest_of, look_up
from potluck.tasks.grading import answer_in, same_number
from potluck.tasks.math_workers import Ask, are_right, require_algebra
from potluck.tasks.overlap import normalised
from potluck.tasks.reading import Row, hub_rows, json_lines
from potluck.tasks.rows import Grading, Rules, plain_columns, problem_of
from potluck.types import Completion, Problem

LONGEST_ROW_BYTES = 2**20
MOST_ROWS = 1_000_000
"""Of one part. All of them are held in memory."""


class Table:
    """Rows as problems; 1.0 for a right answer in the right form, else 0.0.

    Where no validation part is given, ``held_out`` problems of train are: those whose sha256 of
    the normalised question is smallest, which are then no training problems. Rows that ask the
    same question are held out together, so there may be a few more.
    """

    def __init__(
        self, name: str, parts: Mapping[Split, Iterable[Row]], rules: Rules, *, held_out: int = 512
    ) -> None:
        """Reads every row of ``parts``; a part that is not there is an empty split.

        Raises:
            TaskError: a row without its columns, too few rows to hold some out, or
                ``grading = "math"`` without math-verify.
        """
        if rules.answer and rules.grading == "math":
            require_algebra()
        self._name, self._rules = name, rules
        self._rows: dict[str, Mapping[str, Any]] = {}
        self._problems: dict[str, Problem] = {}
        self._ids: dict[Split, list[str]] = {split: [] for split in get_args(Split)}
        columns = hashlib.sha256()
        for split, rows in parts.items():
            for i, (where, row) in enumerate(rows):
                id = f"{name}/{split}/{i}"
                self._problems[id] = problem_of(id, row, where, rules)
                self._rows[id], plain = plain_columns(row)
                columns.update(plain.encode() + b"\n")
                self._ids[split].append(id)
        if "train" in parts and "validation" not in parts and held_out:
            self._hold_out(held_out)
        everything = [self._problems[id] for split in self._ids for id in self._ids[split]]
        sizes = {split: len(ids) for split, ids in self._ids.items()}
        self.digest = digest_of(
            f"table 1: {name}, {rules}, {sizes}, columns {columns.hexdigest()}", everything
        )

    def _hold_out(self, count: int) -> None:
        train = self._ids["train"]
        if len(train) <= count:
            raise TaskError(
                f"{self._name} has {len(train)} problems to train on, of which held_out = {count} "
                f"would be held out for validation; give more, lower task.held_out, or name "
                f"a validation part"
            )
        luck = {id: _luck(self._problems[id].question) for id in train}
        last = sorted(luck.values())[count - 1]
        held_out = [id for id in train if luck[id] <= last]
        self._ids["validation"] = sorted(held_out, key=luck.__getitem__)
        self._ids["train"] = [id for id in train if luck[id] > last]
        if not self._ids["train"]:
            raise TaskError(f"{self._name} asks one question too often to hold problems out of it")

    def ids(self, split: Split) -> Sequence[str]:
        return self._ids[split]

    def problem(self, id: str) -> Problem:
        return look_up(self._problems, id, example=next(iter(self._problems)))

    def row(self, id: str) -> Mapping[str, Any]:
        """Every column of the problem's row that JSON can hold; raises TaskError as ``problem``."""
        return self._rows[self.problem(id).id]

    def rewards(
        self,
        problems: Sequence[Problem],
        completions: Sequence[Completion],
        texts: Sequence[str],
    ) -> list[float]:
        """Raises TaskError, beside what every task does, where rows have no answers."""
        if not self._rules.answer:
            raise TaskError(f"{self._name} has no answers to grade by; give a [[reward]]")
        answers = [answer_in(text) if self._rules.tags else text for text in texts]
        return binary_rewards(_right(problems, answers, self._rules.grading), completions)


def jsonl_parts(
    path: str, *, validation: str = "", out_of_distribution: str = ""
) -> dict[Split, Iterable[Row]]:
    """The rows of up to three files of JSON lines, one object a line.

    Raises:
        TaskError: none of them is named; and, as they are read, what is no such file, or empty.
    """
    files: dict[Split, tuple[str, str]] = {
        "train": ("path", path),
        "validation": ("validation", validation),
        "out-of-distribution": ("out_of_distribution", out_of_distribution),
    }
    if not any(file for _, file in files.values()):
        raise TaskError("task.path is empty; expected a file with one JSON object a line")
    return {
        split: _counted(
            json_lines(
                Path(file).expanduser(),
                file=f"a file with one JSON object a line in task.{key}",
                line="an object with a question and an answer",
                longest_bytes=LONGEST_ROW_BYTES,
            ),
            file,
        )
        for split, (key, file) in files.items()
        if file
    }


def hub_parts(
    dataset: str,
    subset: str = "",
    *,
    train: str = "train",
    validation: str = "",
    out_of_distribution: str = "",
) -> dict[Split, Iterable[Row]]:
    """The rows of up to three splits of a data set of the Hub, or of a folder of such files.

    Nothing that a data set brings along is run: ``trust_remote_code`` is never given.

    Raises:
        TaskError: no split is named, or one cannot be loaded; and, as it is read, an empty one.
    """
    wanted: dict[Split, str] = {
        "train": train,
        "validation": validation,
        "out-of-distribution": out_of_distribution,
    }
    if not any(wanted.values()):
        raise TaskError("task.train is empty; expected a split of the data set, such as 'train'")
    return {
        split: _counted(
            hub_rows(
                dataset,
                subset or None,
                name,
                empty=f"task.dataset is {dataset!r}",
                way_out="or save it as JSON lines and set task.name = 'jsonl'",
            ),
            f"{dataset} {name}",
        )
        for split, name in wanted.items()
        if name
    }


def _counted(rows: Iterable[Row], source: str) -> Iterator[Row]:
    """``rows`` of ``source``, which are at least one and at most MOST_ROWS."""
    count = 0
    for count, row in enumerate(rows, start=1):
        if count > MOST_ROWS:
            raise TaskError(f"{source} has more than {MOST_ROWS} rows; give fewer")
        yield row
    if not count:
        raise TaskError(f"{source} holds no problem; expected one in every row")


def _right(
    problems: Sequence[Problem], answers: Sequence[str | None], grading: Grading
) -> list[bool]:
    """Whether each answer is its problem's; None is no answer."""
    pairs = list(zip(problems, answers, strict=True))
    match grading:
        case "number":
            return [a is not None and same_number(p.answer, a) for p, a in pairs]
        case "exact":
            return [a is not None and _same_text(p.answer, a) for p, a in pairs]
        case "math":
            asks = [Ask(p.question, p.answer, a) for p, a in pairs if a is not None]
            verdicts = iter(are_right(asks))
            return [a is not None and next(verdicts) for a in answers]


def _same_text(gold: str, answer: str) -> bool:
    return gold.strip() == answer.strip()


def _luck(question: str) -> bytes:
    """Depends on what is asked alone, not on where it stands or on the order of a shuffle."""
    return hashlib.sha256(normalised(question).encode()).digest()
