"""Your own rows as a task, from a file or from the Hub: docs/tasks.md. All columns of a row stay
with its problem, for a function of ``rewards.py``. An id is like ``jsonl/train/17``, from 0."""

import hashlib
import json
import re
import reprlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from unicodedata import normalize

import numpy as np
from msgspec import Meta

from potluck.fields import Amount, Count
from potluck.tasks import sources
from potluck.tasks.base import (
    FEWEST_TOLD,
    HeldTask,
    Split,
    Task,
    TaskError,
    binary_rewards,
    normalised,
)
from potluck.tasks.choice import (
    AnswerAs,
    Option,
    gold_of,
    named_in_answer,
    named_in_text,
    options_of,
    readings_of,
    with_options,
)
from potluck.tasks.environments.task import EnvironmentTask, PlayOptions
from potluck.tasks.examples import Example, examples_for, with_examples
from potluck.tasks.grading import (
    LACKING,
    LAST,
    PLAIN_PROMPTS,
    SYSTEM_PROMPTS,
    TAGS,
    LastAnswer,
    answer_in,
    number_in,
    one_number,
    same_number,
)
from potluck.tasks.json_rows import Refuse, Repeated, SourceRow, text_of_value
from potluck.tasks.math.pool import Ask, are_right, require_algebra
from potluck.tasks.sources import Parts, printable, refuse_all
from potluck.types import Completion, Problem

LONGEST_ANSWER = 200
"""Characters by which answers are compared to one another."""
Grading = Literal["number", "exact", "math", "math-verify", "choice"]

MOST_HELD_OUT = 512
SPLITS: tuple[Split, ...] = "train", "validation", "out-of-distribution"
RULES = ("question", "answer", "answer_after", "grading", "tags", "system_prompt")
"""Options that decide what the problems are and when one is solved: the digest has them."""
LATER_RULES = ("tolerance", "last_answer", "options", "answer_as")
"""The same, where they are set: digests of tasks from before these options stay as they were."""
TEMPLATE = re.compile(r"\{\{|\}\}|\{([^{}]+)\}|[{}]")
"""A place for a column, or a brace: doubled it is one, else a slip."""
MESSAGES_AS_TEXT = re.compile(r"""\s*\[?\s*\{\s*(['"])(role|content|from)\1\s*:""")
"""Beginning of a text that a table has made of messages, by JSON or by Python."""


class TableOptions(PlayOptions, frozen=True, kw_only=True):
    """Rows of one's own: the options that are the same wherever the rows come from."""

    question: str = "question"
    """Column that holds the problem: a text, or messages of a system and a user. With braces, a
    template of several columns: "{Body} {Question}"; a brace itself is doubled."""
    answer: str = "answer"
    """Column that holds the right answer; empty: there is none, so a ``[[reward]]`` has to."""
    answer_after: str = ""
    """Mark in the answer column after which the answer stands: "####" in GSM8K."""
    grading: Grading = "number"
    """Rule for a right answer: the same decimal number; the same text; one finished answer in
    mathematics, or what math-verify finds equal (both: extra ``math``); the same one of several
    ``options``. For anything else give a ``[[reward]]``."""
    options: str | tuple[str, ...] = ""
    """Column with the options of multiple choice, with ``grading = "choice"``: a list, or a mapping
    of letters; or the columns that hold one option each. They are asked below the question."""
    answer_as: AnswerAs = ""
    """Form of the right answer in the column ``answer``, with ``grading = "choice"``: "label" is an
    option's letter, "index" its place from 0, "index-from-1" its place from 1, "text" its text;
    empty: a label, an index from 0 or a text, where no two of them contradict each other."""
    tolerance: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    """Relative error that an answer may have, with ``grading = "number"``."""
    skip_bad: bool = False
    """True: rows that are no problems are left out and counted; False: they end the run."""
    tags: bool = True
    """True: the answer stands in <think></think><answer></answer>, with nothing outside; False: the
    whole completion is the answer, or what ``last_answer`` says."""
    last_answer: LastAnswer = ""
    """Part of a completion that is its answer, without ``tags``, so that it may reason before:
    "number": its last number; "box": what its last ``\\boxed{}`` holds; empty: all of it."""
    examples: str = ""
    """File, or split of ``hub``'s data set, with worked examples in the columns of the task: some
    stand before each question, as ``Question: ...`` and ``Answer: ...`` (docs/tasks.md)."""
    shots: Count = 4
    """Number of ``examples`` before each question: the first that are not the problem itself, and
    no problem to validate with."""
    worked: str = ""
    """Column of ``examples`` with the worked answers; empty: the column ``answer``."""
    system_prompt: str = ""
    """System prompt instead of a row's own and of the built-in one, which asks for the tags, or in
    multiple choice without tags for a letter."""
    held_out: Amount | None = None
    """Training problems to hold out without a validation part; not given: a tenth, 512 at most."""
    validation: str = ""
    """File, or split of the data set, with the validation problems."""
    out_of_distribution: str = ""
    """File, or split, with problems of another kind, for the end of the run."""
    game: str = ""
    """Class that answers, for several turns; ``reset`` gets the row: docs/environments.md."""
    environment: str = ""
    """Class of TRL's ``environment_factory`` instead: its methods are tools."""

    @property
    def has_answers(self) -> bool:
        return bool(self.answer or self.code)

    @property
    def question_columns(self) -> list[str]:
        """Names of the columns that the question is made of."""
        return [m[1] for m in TEMPLATE.finditer(self.question) if m[1]] or [self.question]

    first: ClassVar[str]
    """Key of the file or split to train on."""

    def rows(self, key: str, place: str, refuse: Refuse) -> Iterable[SourceRow]:
        """Read the recipe's file or split ``key``; raise TaskError if it cannot be read."""
        raise NotImplementedError

    def parts(self, refuse: Refuse = refuse_all) -> Parts:
        """Read the rows of each part, as ``rows`` does; raise TaskError if none is named."""
        keys = zip(SPLITS, (self.first, "validation", "out_of_distribution"), strict=True)
        named = {split: (key, place) for split, key in keys if (place := getattr(self, key))}
        if not named:
            raise TaskError(f"task.{self.first} is empty; expected a file or split to train on")
        return {split: self.rows(*each, refuse) for split, each in named.items()}

    def make(self) -> Task:
        entry, left_out = self.play(), list[TaskError]()
        parts = self.parts(left_out.append if self.skip_bad else refuse_all)
        table = Table(str(self.__struct_config__.tag), parts, self, left_out)
        return EnvironmentTask(table, self, *entry, row=table.row) if entry else table


class JsonlOptions(TableOptions, frozen=True, kw_only=True, tag_field="name", tag="jsonl"):
    """Problems of your own, in files on this machine: docs/tasks.md."""

    path: str = ""
    """File to train on: one JSON object a line, a JSON array, or a table in .csv or .tsv."""
    columns: tuple[str, ...] = ()
    """Names of the columns of .csv and .tsv files whose first line does not have them."""

    first: ClassVar[str] = "path"

    def rows(self, key: str, place: str, refuse: Refuse) -> Iterable[SourceRow]:
        wanted = f"{sources.FILES} in task.{key}"
        return sources.file_rows(place, wanted, self.columns, refuse, self.question_columns)


class HubOptions(TableOptions, frozen=True, kw_only=True, tag_field="name", tag="hub"):
    """A data set of the Hugging Face Hub: docs/tasks.md."""

    dataset: str
    """``owner/name`` on the Hub, or a folder of JSON, CSV or parquet files (extra ``data``)."""
    subset: str = ""
    """Configuration of the data set, as ``datasets`` calls it; empty: the only one."""
    train: str = "train"
    """Split to train on; empty: none."""

    first: ClassVar[str] = "train"

    def rows(self, key: str, place: str, refuse: Refuse) -> Iterable[SourceRow]:
        if key == "examples" and Path(place).expanduser().is_file():
            wanted = f"{sources.FILES} in task.{key}"
            return sources.file_rows(place, wanted, (), refuse, self.question_columns)
        empty = f"task.dataset is {self.dataset!r}"
        way_out = "or save it as JSON lines and set task.name = 'jsonl'"
        return sources.hub_rows(self.dataset, self.subset, place, empty=empty, way_out=way_out)

    @property
    def hub_name(self) -> str:
        return self.dataset


class Answered(HeldTask):
    """Problems with right answers: 1.0 for one in the right form, else 0.0."""

    def __init__(
        self,
        rules: TableOptions,
        version: str,
        splits: Mapping[Split, Sequence[Problem]],
        problems: Iterable[Problem] | None = None,
        *,
        examples: Iterable[SourceRow] = (),
        options: Mapping[str, Sequence[Option]] | None = None,
    ) -> None:
        """Take the problems as ``HeldTask`` does; ``version`` begins the digest, ``options`` are of
        multiple choice, by ids. ``examples``: rows, of which some are put before each question.
        Raise TaskError where they are too few."""
        self._rules, self._options = rules, dict(options or {})
        known = [*chain.from_iterable(splits.values())] if problems is None else [*problems]
        if rules.examples:
            train = {problem.id for problem in splits.get("train", ())}
            held = {normalised(problem.question) for problem in known if problem.id not in train}
            some = self._candidates(examples, held)
            shown = {p.id: with_examples(p, examples_for(p, some, rules.shots)) for p in known}
            splits = {split: [shown[p.id] for p in its] for split, its in splits.items()}
            known = [*shown.values()]
        super().__init__(version, splits, known)

    def _candidates(self, rows: Iterable[SourceRow], held: Collection[str]) -> list[Example]:
        """Read the first examples of ``rows`` that are not ``held`` out, one more than are shown:
        one may be the problem itself. Add a note on those that are left out or earn nothing."""
        rules, found = self._rules, dict[str, Example]()
        left_out, unpaid = list[str](), list[str]()
        for i, (where, row) in enumerate(rows):
            problem = problem_of(f"examples/{i}", row, where, rules)
            asked = normalised(problem.question)
            if asked in held:
                left_out.append(where)
                continue
            if rules.options:
                self._options[problem.id] = options_of(row, rules.options, where)
            text = _worked(row, where, rules, problem)
            found.setdefault(asked, Example(problem.question, text))
            if len(found) > rules.shots:
                break
            if rules.answer and not self._pays(problem, text):
                unpaid.append(where)
        if len(found) < rules.shots:
            raise TaskError(
                f"task.examples is {rules.examples}, with {len(found)} examples that are not held "
                f"out, but task.shots is {rules.shots}; give more, or lower it"
            )
        if left_out:
            self.notes += (
                f"examples: {len(left_out)} rows are problems that are held out, and are not "
                f"shown, first {left_out[0]}",
            )
        if unpaid:
            self.notes += (
                f"examples: the answers of {len(unpaid)} would earn nothing as completions, first "
                f"{unpaid[0]}; they teach a form that is not graded",
            )
        return list(found.values())

    def _pays(self, problem: Problem, text: str) -> bool:
        """Tell whether a text would be right as a completion."""
        token_T = np.zeros(1, np.int32)
        written = Completion(problem.id, "example", 0, token_T, None, "stop")
        return self.rewards([problem], [written], [text]) == [1.0]

    def options(self, problem: Problem) -> Sequence[Option]:
        """Look up the options of a problem of multiple choice; empty: it is none."""
        return self._options.get(problem.id, ())

    def guess(self, problem: Problem) -> float | None:
        """Compute what a guess among the options earns; None: there are none."""
        options = self.options(problem)
        return 1 / len(options) if options else None

    def rewards(
        self, problems: Sequence[Problem], completions: Sequence[Completion], texts: Sequence[str]
    ) -> list[float]:
        rules = self._rules
        if not rules.answer:
            raise TaskError("there are no answers to grade by; give a [[reward]]")
        # A completion that earns nothing anyway is not read: algebra is the slow part.
        ended = [c.end == "stop" for c in completions]
        triples = zip(ended, problems, texts, strict=True)
        answers = [self._answer_in(p, text) if over else None for over, p, text in triples]
        asked = list(zip(problems, answers, strict=True))
        if rules.grading in ("math", "math-verify"):
            right = are_right([Ask(p.question, p.answer, a, rules.grading) for p, a in asked])
        elif rules.grading == "choice":
            right = [p.answer == a for p, a in asked]
        elif rules.grading == "exact":
            right = [a is not None and _same_text(p.answer, a) for p, a in asked]
        else:
            by = rules.tolerance
            right = [a is not None and same_number(p.answer, a, tolerance=by) for p, a in asked]
        return binary_rewards(right, completions)

    def _answer_in(self, problem: Problem, text: str) -> str | None:
        rules = self._rules
        answer = answer_in(text) if rules.tags else text
        if answer is None:
            return None
        if options := self.options(problem):
            return (named_in_answer if rules.tags else named_in_text)(answer, options)
        return LAST[rules.last_answer](text) if rules.last_answer else answer

    def answer_of(self, problem: Problem, text: str) -> str:
        """Find the answer that a text gives; empty: none that can be told."""
        return (self._answer_in(problem, text) or "").strip()[:LONGEST_ANSWER]

    def lacking(self, problem: Problem, text: str) -> str:
        """Say what a text lacks of the form of an answer; empty: nothing, so far as can be told."""
        rules = self._rules
        if rules.tags and answer_in(text) is None:
            return "not <think>...</think><answer>...</answer>, and nothing beside it"
        answer = self._answer_in(problem, text)
        if answer is None and rules.grading == "choice":
            return "no option, or more than one"
        if answer is None:
            return LACKING[rules.last_answer]
        if rules.grading == "number" and number_in(answer) is None:
            return "no number alone where the answer is to be"
        return ""


def _same_text(gold: str, answer: str) -> bool:
    """Tell whether two texts are the same, whatever ends their lines and composes their letters."""
    return _composed(gold).strip() == _composed(answer).strip()


def _composed(text: str) -> str:
    """Write line ends as LF and, beyond ASCII, letters with their accents as one (NFC)."""
    return normalize("NFC", text.replace("\r\n", "\n").replace("\r", "\n"))


class Table(Answered):
    """Rows as problems. Rows that ask the same are held out together: there may be a few more."""

    def __init__(
        self, name: str, parts: Parts, rules: TableOptions, unreadable: Sequence[TaskError] = ()
    ) -> None:
        """Read every row of ``parts``, which fills ``unreadable`` with errors of lines that are
        left out. Raise TaskError for bad or too few rows, or where math-verify is not there."""
        if rules.answer and rules.grading in ("math", "math-verify"):
            require_algebra()
        if rules.tolerance and rules.grading != "number":
            raise TaskError(
                f"task.tolerance is {rules.tolerance:g}, but grading {rules.grading!r} has none; "
                f"set task.grading = 'number' or drop it"
            )
        if rules.last_answer and rules.tags:
            raise TaskError(
                f"task.last_answer is {rules.last_answer!r}, but with task.tags the answer stands "
                f"between tags; set task.tags = false or drop it"
            )
        _require_choice(rules)
        _require_examples(rules)
        self.has_messages = False
        """True: some question is messages, so that rewards get messages too."""
        _require_template(rules.question)
        bad, columns = list[str](), hashlib.sha256()
        self._rows: dict[str, Mapping[str, Any]] = {}
        # Columns that rewards get otherwise than the data has them, each with a first example.
        self._note_columns, self._left_out = dict[str, str](), dict[str, str]()
        repeated = dict[str, str]()
        options = dict[str, Sequence[Option]]()
        # Letters of the answers that were read as an index from 0.
        indexed = list[str]()
        found: dict[Split, list[Problem]] = {split: [] for split in SPLITS}
        for split, rows in parts.items():
            for i, (where, row) in enumerate(rows):
                id = f"{name}/{split}/{i}"
                try:
                    problem = problem_of(id, row, where, rules)
                except TaskError as error:
                    bad.append(str(error))
                    continue
                found[split].append(problem)
                if rules.options:
                    options[id] = options_of(row, rules.options, where)
                    if rules.answer and _is_indexed(row, where, rules, options[id]):
                        indexed.append(problem.answer)
                if isinstance(row, Repeated):
                    for key in row.names:
                        repeated.setdefault(key, f"{key[:40]!r} ({where})")
                self.has_messages |= isinstance(row.get(rules.question), list | dict)
                changed, left_out = self._note_columns, self._left_out
                self._rows[id], plain = _plain_columns(_as_texts(row, changed), left_out)
                columns.update(plain.encode() + b"\n")
        if bad := [*map(str, unreadable), *bad]:
            self.notes = _notes_on_bad(name, bad, sum(map(len, found.values())), rules.skip_bad)
        self.notes += _notes_on_columns(name, self._note_columns, self._left_out)
        self.notes += _notes_on_indices(name, indexed)
        if repeated:
            self.notes += (
                f"{name}: names that stand twice in a row with unlike values, of which the last "
                f"counts: {', '.join(repeated.values())}",
            )
        self.notes += _notes_on_messages(name, [p for its in found.values() for p in its])
        if rules.answer and not rules.code:
            self.notes += _notes_on_answers(name, [p for its in found.values() for p in its])
        if "train" in parts and "validation" not in parts and rules.held_out != 0:
            some = min(MOST_HELD_OUT, max(1, len(found["train"]) // 10))
            some = rules.held_out or some
            found |= held_out(name, found["train"], some, lambda p: normalised(p.question))
        sizes = {split: len(problems) for split, problems in found.items()}
        shown = (*RULES, *(key for key in LATER_RULES if getattr(rules, key)))
        chosen = ", ".join(f"{key}={getattr(rules, key)!r}" for key in shown)
        version = {"number": 3, "math": 4, "math-verify": 2}.get(rules.grading, 1)
        if rules.grading == "exact" and any(_is_composed(p) for its in found.values() for p in its):
            version = 2
        known = f"Rules({chosen}), {sizes}, columns {columns.hexdigest()}"
        super().__init__(
            rules,
            f"table {version}: {name}, {known}",
            found,
            examples=rules.rows("examples", rules.examples, refuse_all) if rules.examples else (),
            options=options,
        )

    def row(self, id: str) -> Mapping[str, Any]:
        """Look up the columns of the problem's row that JSON can hold."""
        return self._rows[self.problem(id).id]


def _require_choice(rules: TableOptions) -> None:
    """Raise TaskError where the keys of multiple choice stand without each other, or with one of
    another grading."""
    if rules.grading == "choice" and not rules.options:
        raise TaskError(
            "task.grading is 'choice', but task.options is empty; name the column with the options"
        )
    for key in ("options", "answer_as"):
        if rules.grading != "choice" and (value := getattr(rules, key)):
            raise TaskError(
                f"task.{key} is {value!r}, but grading {rules.grading!r} has no options; set "
                f"task.grading = 'choice' or drop it"
            )
    if rules.grading == "choice" and rules.last_answer:
        raise TaskError(
            f"task.last_answer is {rules.last_answer!r}, but grading 'choice' finds the option in "
            f"a text by itself; drop it"
        )


def _require_examples(rules: TableOptions) -> None:
    """Raise TaskError for a column of examples without any, and for examples of one answer in a
    task of several turns."""
    if rules.worked and not rules.examples:
        raise TaskError(
            f"task.worked is {rules.worked!r}, a column of task.examples, which is empty; name "
            f"their file or drop it"
        )
    if rules.examples and (keys := list(rules.code)):
        raise TaskError(
            f"task.examples are answers of one turn, but task.{keys[0]} answers in several; put "
            f"them into task.system_prompt, or drop one of the two"
        )


def _is_indexed(
    row: Mapping[str, Any], where: str, rules: TableOptions, options: Sequence[Option]
) -> bool:
    """Tell whether the answer was read as an index because nothing else fitted."""
    readings = readings_of(_answer_text(row, where, rules), options, rules.answer_as)
    return not rules.answer_as and set(readings) == {"index"}


def _notes_on_indices(name: str, letters: Sequence[str]) -> tuple[str, ...]:
    """Tell of answers that may count from 1 and were read as counting from 0."""
    if len(letters) < FEWEST_TOLD or "A" in letters:
        return ()
    return (
        f"{name}: {len(letters)} answers are read as the index of an option, from 0, and none is "
        f"0; if they count from 1, set task.answer_as = 'index-from-1', else 'index'",
    )


def _is_composed(problem: Problem) -> bool:
    """Tell whether an answer to it may be right by ``_composed`` alone."""
    return not problem.answer.isascii() or "\n" in problem.answer or "\r" in problem.answer


def _notes_on_bad(name: str, bad: Sequence[str], good: int, skip_bad: bool) -> tuple[str, ...]:
    """Tell of rows that are left out; raise TaskError if they may not be, or all are."""
    if not good:
        raise TaskError(bad[0])
    count = f"{len(bad)} of {good + len(bad)} rows"
    if not skip_bad:
        raise TaskError(f"{bad[0]}; {count} are no problems: task.skip_bad = true leaves them out")
    return (f"{name}: {count} are left out, the first as {bad[0]}",)


def held_out(
    name: str, train: Sequence[Problem], count: int, of: Callable[[Problem], str]
) -> dict[Split, list[Problem]]:
    """Hold so many problems out, those of the smallest hashes of what is ``of`` them: so neither a
    row's place nor a shuffle matters. Raise TaskError where too few are left."""
    if len(train) <= count:
        raise TaskError(
            f"{name} has {len(train)} problems to train on, of which {count} would be held out for "
            f"validation; give more, name task.validation, or lower task.held_out where it has one"
        )
    luck = {p.id: hashlib.sha256(of(p).encode()).digest() for p in train}
    last = sorted(luck.values())[count - 1]
    left = [p for p in train if luck[p.id] > last]
    if not left:
        raise TaskError(f"{name} asks one question too often to hold problems out of it")
    held_out = [p for p in train if luck[p.id] <= last]
    return {"train": left, "validation": sorted(held_out, key=lambda p: luck[p.id])}


def problem_of(id: str, row: Any, where: str, rules: TableOptions) -> Problem:
    """Read the problem in ``row`` at ``where``; raise TaskError if ``rules`` need more of it."""
    if not isinstance(row, dict):
        raise TaskError(f"{where} is {reprlib.repr(row)}; expected an object with a question")
    is_template = "{" in rules.question or "}" in rules.question
    asked = (_filled if is_template else _column)(row, rules.question, where)
    system, before, question = _asked(asked, rules.question, where)
    if before and rules.examples:
        raise TaskError(
            f"{where} has {len(before)} examples of its own in {rules.question!r}; drop them, or "
            f"task.examples"
        )
    options = options_of(row, rules.options, where) if rules.options else []
    if options:
        question = with_options(question, options)
    prompts = SYSTEM_PROMPTS if rules.tags else {} if rules.examples else PLAIN_PROMPTS
    built_in = prompts.get(rules.grading, "") if rules.answer else ""
    answer = _answer(row, where, rules, options) if rules.answer else ""
    problem = Problem(id, question, answer, rules.system_prompt or system or built_in)
    return with_examples(problem, before) if before else problem


def _worked(row: Any, where: str, rules: TableOptions, problem: Problem) -> str:
    """Write the answer of an example as a model would: a worked text, or the right answer, in tags
    where the task asks for them."""
    if not (key := rules.worked or rules.answer):
        raise TaskError("task.examples have no answers; name their column in task.worked")
    if rules.options and not rules.worked:
        text = problem.answer
    else:
        text = printable(_cell(row, key, where), key, where, expected="a worked answer").strip()
    if not (rules.tags and rules.answer) or all(tag in text for tag in TAGS):
        return text
    before, mark, _ = text.partition(rules.answer_after) if rules.answer_after else ("", "", "")
    thoughts = before.strip() if mark else text if rules.worked else ""
    return f"<think>{thoughts}</think><answer>{problem.answer}</answer>"


def _filled(row: Mapping[str, Any], template: str, where: str) -> str:
    """Put texts and numbers of the row in place of the columns' names."""
    return TEMPLATE.sub(lambda m: _cell(row, m[1], where) if m[1] else m[0][0], template)


def _require_template(question: str) -> None:
    for match in TEMPLATE.finditer(question):
        if match[0] in ("{", "}"):
            raise TaskError(
                f"task.question is {question!r}, with a {match[0]!r} alone at {match.start()}; a "
                f"column stands in two, as in '{{Body}} {{Question}}', and a brace is doubled"
            )


def _cell(row: Mapping[str, Any], key: str, where: str) -> str:
    """Read a text, or a number as its file has it and without an exponent."""
    value = _column(row, key, where)
    if (text := text_of_value(value)) is None:
        found = reprlib.repr(value)
        raise TaskError(f"{where} has {found} as {key!r}; expected a text or a number")
    return text


def _column(row: Mapping[str, Any], key: str, where: str) -> Any:
    if key not in row:
        raise _no_column(row, key, where)
    return row[key]


def _no_column(row: Mapping[str, Any], key: str, where: str, otherwise: str = "") -> TaskError:
    """Make the error for a column that is not there; name what stands within other columns, and
    what one may do ``otherwise`` if it is that."""
    within = {name: value for name, value in row.items() if isinstance(value, dict) and value}
    there = ", ".join(_with_keys(name, within.get(name, {})) for name in islice(row, 20)) or "none"
    way_out = f"; what is within a column is not read: give it its own{otherwise}" if within else ""
    return TaskError(f"{where} has no column {key!r}; it has {there}{way_out}")


def _with_keys(name: str, value: Mapping[str, Any]) -> str:
    keys = ", ".join(key[:40] for key in islice(value, 5))
    return f"{name[:40]} (with {keys})" if keys else name[:40]


def _asked(value: Any, key: str, where: str) -> tuple[str, list[Example], str]:
    """Read (system prompt, examples before the question, question)."""
    if isinstance(value, str):
        return "", [], printable(value, key, where, expected="a problem")
    messages = value if isinstance(value, list) else [value]
    contents = [_content(message, key, where) for message in messages]
    if None in contents:
        found = f"{reprlib.repr(value)} as {key!r}"
        raise TaskError(
            f"{where} has {found}; expected a text, or messages with 'role' and 'content'"
        )
    roles = [message.get("role") for message in messages]
    said = [printable(text or "", key, where, expected="a problem") for text in contents]
    system = said.pop(0) if roles[:1] == ["system"] else ""
    turns = roles[1:] if system else roles
    if turns != ["user", "assistant"] * (len(turns) // 2) + ["user"]:
        way_out = ""
        if len(roles) > 1 and roles[-1] == "assistant":
            way_out = "; drop the last, which the model is to write"
        raise TaskError(
            f"{where} has messages of {reprlib.repr(roles)} as {key!r}; expected 'user' and "
            f"'assistant' in turn, 'user' last, 'system' first or not{way_out}"
        )
    before = [Example(*pair) for pair in zip(said[:-1:2], said[1::2], strict=True)]
    return system, before, said[-1]


def _content(message: Any, key: str, where: str) -> str | None:
    """Read the text of a message, of its parts where it has some; None if there is none. Raise
    TaskError for a part that is no text."""
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        return None
    texts = list[str]()
    for part in content:
        if not isinstance(part, dict):
            return None
        text = part.get("text")
        if part.get("type", "text") != "text" or not isinstance(text, str):
            kind = reprlib.repr(part.get("type"))
            raise TaskError(
                f"{where} has a part of type {kind} in messages of {key!r}; expected texts alone"
            )
        texts.append(text)
    return "\n".join(texts)


def _answer(
    row: Mapping[str, Any], where: str, rules: TableOptions, options: Sequence[Option]
) -> str:
    text = _answer_text(row, where, rules)
    if options:
        return gold_of(text, options, rules.answer_as, rules.answer, where)
    if rules.grading == "number" and one_number(text) is None:
        raise TaskError(
            f"{where} has {reprlib.repr(text)} as {rules.answer!r}; grading = 'number' needs one "
            f"decimal number; choose task.grading = 'exact' or 'math'"
        )
    return text.strip()


def _answer_text(row: Mapping[str, Any], where: str, rules: TableOptions) -> str:
    if rules.answer not in row:
        otherwise = ", or set task.answer = '' and let a [[reward]] read it"
        raise _no_column(row, rules.answer, where, otherwise)
    text = _cell(row, rules.answer, where)
    if rules.answer_after:
        before, mark, text = text.partition(rules.answer_after)
        if not mark:
            raise TaskError(
                f"{where} has an {rules.answer!r} without {rules.answer_after!r}, which ends in "
                f"{reprlib.repr(before[-30:])}; expected '{rules.answer_after} 18'"
            )
    return printable(text, rules.answer, where, expected="what is right")


def _as_texts(row: Mapping[str, Any], changed: dict[str, str]) -> dict[str, Any]:
    """Write dates, times, decimals, labels as texts; add columns that have some to ``changed``."""
    texts = {}
    for key, value in row.items():
        texts[key] = _as_text(value)
        if texts[key] is not value and key not in changed:
            changed[key] = f"{key[:40]!r} ({reprlib.repr(texts[key])})"
    return texts


def _as_text(value: Any) -> Any:
    """Write a date or time as ISO 8601, a decimal as its digits, a label as its name, also within a
    list or dict; return the value itself where there is none."""
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    if isinstance(value, Decimal | sources.Label):
        return str(value)
    if type(value) is list:
        items = [_as_text(item) for item in value]
        same = all(new is old for new, old in zip(items, value, strict=True))
        return value if same else items
    if type(value) is dict:
        fields = {key: _as_text(item) for key, item in value.items()}
        return value if all(fields[key] is value[key] for key in value) else fields
    return value


def _plain_columns(row: Mapping[str, Any], left_out: dict[str, str]) -> tuple[dict[str, Any], str]:
    """Keep the columns that are JSON, and write them as one line; add others to ``left_out``."""
    lines = {}
    for key, value in row.items():
        try:
            lines[key] = json.dumps([key, value], sort_keys=True)
        except (TypeError, ValueError):
            left_out.setdefault(key, f"{key[:40]!r} ({type(value).__name__})")
    return {key: row[key] for key in lines}, "".join(sorted(lines.values()))


def _notes_on_columns(
    name: str, changed: Mapping[str, str], left_out: Mapping[str, str]
) -> tuple[str, ...]:
    """Tell which columns rewards get as texts, and which they do not get."""
    notes = list[str]()
    if changed:
        notes.append(
            f"{name}: rewards get dates, decimals and class labels as texts: "
            f"{', '.join(changed.values())}"
        )
    if left_out:
        notes.append(
            f"{name}: rewards do not get columns that JSON cannot hold: "
            f"{', '.join(left_out.values())}"
        )
    return tuple(notes)


def _notes_on_messages(name: str, problems: Sequence[Problem]) -> tuple[str, ...]:
    """Tell of questions that are messages written as a text, with an example."""
    texts = [problem for problem in problems if MESSAGES_AS_TEXT.match(problem.question)]
    if not texts:
        return ()
    return (
        f"{name}: {len(texts)} of {len(problems)} questions look like messages that were written "
        f"as a text, and are asked as it stands, first {reprlib.repr(texts[0].question)}; give "
        f"messages as lists in JSON",
    )


def _notes_on_answers(name: str, problems: Sequence[Problem]) -> tuple[str, ...]:
    """Tell of questions that come with more than one answer, with an example."""
    answers: dict[tuple[str, str], str] = {}
    several: dict[tuple[str, str], str] = {}
    for problem in problems:
        asked = problem.system, " ".join(problem.question.split())
        first = answers.setdefault(asked, problem.answer)
        one, other = one_number(first), one_number(problem.answer)
        is_same = first == problem.answer or (one is not None and one == other)
        if not is_same:
            several.setdefault(asked, problem.answer)
    if not several:
        return ()
    asked, other_answer = next(iter(several.items()))
    return (
        f"{name}: {len(several)} of {len(answers)} questions come with more than one answer, first "
        f"{reprlib.repr(asked[1])} with {reprlib.repr(answers[asked])} and "
        f"{reprlib.repr(other_answer)}; each row is graded by its own",
    )
