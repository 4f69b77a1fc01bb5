"""Solutions from a file of JSON lines: those of people, of a data set, of another run.

{"problem": "What is 9 + 9?", "solution": "Nine and nine are <answer>18</answer>"}
{"problem": "maze/17", "turns": [["north", []], ["east", []]]}
"""

import reprlib
from codecs import BOM_UTF8
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from potluck.episode import EnvironmentFailed, Turn, digest_of, text_of, turns_in
from potluck.file_forms import Unreadable, open_rows
from potluck.files import derived_seed
from potluck.rollout.base import EngineSettings, Progress, Requests, RolloutError
from potluck.rollout.texts.base import (
    NO_TOKENS,
    Ended,
    Written,
    can_be_read,
    cut_at_stop_text,
)
from potluck.rollout.texts.endpoint import turn_in
from potluck.types import Completion, End, Problem

LONGEST_LINE_BYTES = 2**20
WANTED = "JSON lines in [node.NAME.engine] path"
TURNS = "turns"  # key of an episode, in place of the key of a solution
MOST_BYTES = 2**28  # size of a file: all of it is held in memory, as objects of five times its size


class SolutionFile:
    """The solutions of a file, by their problem: its id or its question."""

    def __init__(self, path: Path, problem: str, solution: str) -> None:
        """Read all, by the keys of a line; raise RolloutError for no such file, or a wrong line."""
        require_file(path)
        self.path = path
        self.kinds: set[str] = set()  # of its lines: the key of solutions, or TURNS
        self._lines: dict[str, list[tuple[int, list[str]]]] = {}
        size = 0
        try:
            with open_rows(path) as source:
                lines = iter(partial(source.readline, LONGEST_LINE_BYTES + 1), b"")
                for number, raw in enumerate(lines, start=1):
                    if raw.removeprefix(BOM_UTF8).strip() or len(raw) > LONGEST_LINE_BYTES:
                        where = f"{path}, line {number}"
                        key, kind, texts = _read_line(raw, where, problem, solution)
                        self.kinds.add(kind)
                        self._lines.setdefault(key, []).append((number, texts))
                    size += len(raw)
                    if size > MOST_BYTES:
                        raise RolloutError(f"{path} has more than {MOST_BYTES} bytes; give fewer")
        except Unreadable as error:
            raise RolloutError(f"{error}; expected {WANTED}") from None
        except OSError as error:
            why = f"cannot read {path} ({error.strerror})"
            raise RolloutError(f"{why}; set [node.NAME.engine] path") from error
        if not self._lines:
            wanted = f'expected lines of {{"{problem}": ..., "{solution}": ...}}'
            raise RolloutError(f"{path} holds no solution; {wanted}")

    def solved(self, problems: Iterable[Problem]) -> int:
        """Count the problems that the file has a solution of."""
        return sum(bool(self._lines_of(problem)) for problem in problems)

    def solutions(self, problem: Problem, most: int, random: Random) -> list[str]:
        """Find the solutions of at most ``most`` lines of the problem: all, or drawn ones."""
        lines = self._lines_of(problem)
        drawn = sorted(random.sample(range(len(lines)), min(most, len(lines))))
        return [text for place in drawn for text in lines[place][1]]

    def _lines_of(self, problem: Problem) -> list[tuple[int, list[str]]]:
        keys = {problem.id.strip(), problem.question.strip()}
        return sorted(line for key in keys for line in self._lines.get(key, ()))


class FileEngine:
    """An author that gives the solutions of a file; others in other rounds, where a problem has
    more of them than are asked for. Episodes are played here, for their ends and digests."""

    def __init__(self, file: SolutionFile, settings: EngineSettings) -> None:
        self.file, self._settings = file, settings
        self._told: set[str] = set()
        if (file.kinds == {TURNS}) != bool(settings.environment) or len(file.kinds) > 1:
            wanted = "turns alone" if settings.environment else "no turns, as it has no environment"
            found = " and ".join(sorted(file.kinds))
            raise RolloutError(f"{file.path} has lines with {found}; this task wants {wanted}")

    def write(self, requests: Requests, *, author: str, seed: int, progress: Progress) -> Written:
        written: list[Completion] = []
        total = sum(request.count for request in requests)
        for request in requests:
            problem = request.problem
            random = Random(derived_seed(f"{seed}/{problem.id}"))
            texts = self.file.solutions(problem, request.count, random)
            usable = [t for t in texts if can_be_read(t, self._settings.max_new_tokens)]
            if len(usable) < len(texts):
                most = self._settings.max_new_tokens
                self._tell_once(problem, f"longer than {most} tokens can be")
            drawn = sorted(random.sample(range(len(usable)), min(request.count, len(usable))))
            ended = filter(None, [self._ended(problem, usable[place]) for place in drawn])
            for index, each in enumerate(ended):
                written.append(Completion(problem.id, author, index, NO_TOKENS, None, *each))
            progress(len(written), total)
        return Written(tuple(written))

    def _ended(self, problem: Problem, text: str) -> Ended | None:
        """Make a completion's fields of a solution; None: an episode that does not end."""
        if not (environment := self._settings.environment):
            text, end = cut_at_stop_text(text, "stop", self._settings.stop_texts)
            return end, text, b"", (), b""
        with suppress(EnvironmentFailed):
            turns = turns_in(text) or ()
            episode = environment.replay(problem, turns)
            if episode.done or len(turns) == len(episode.observations) == environment.max_turns:
                observed = b"".join(map(digest_of, episode.observations[: len(turns) - 1]))
                last: End = "stop" if episode.done else "turns"
                return last, text, b"", (0,) * len(turns), observed
        self._tell_once(problem, "that do not play to an end here")
        return None

    def _tell_once(self, problem: Problem, what: str) -> None:
        if what not in self._told:
            self._told.add(what)
            first = f"{self.file.path} has solutions, of {problem.id!r} first, {what}"
            self._settings.notify(f"{first}; they are left out")


def require_file(path: Path) -> None:
    """Raise RolloutError unless ``path`` is a file."""
    if not path.is_file():
        raise RolloutError(f"there is no file {path}; expected {WANTED}")


def _read_line(raw: bytes, where: str, problem: str, solution: str) -> tuple[str, str, list[str]]:
    if len(raw) > LONGEST_LINE_BYTES:
        found = f"{where} has more than {LONGEST_LINE_BYTES} bytes"
        raise RolloutError(f"{found}; expected one problem a line")
    wanted = f'expected {{"{problem}": a text, "{solution}": a text or a list of texts}}'
    try:
        row = msgspec.json.decode(raw.removeprefix(BOM_UTF8))
    except UnicodeDecodeError as error:
        found = f"byte {error.object[error.start]:#04x}"
        raise RolloutError(f"{where} has {found}, which is not UTF-8; save it as UTF-8") from None
    except (ValueError, RecursionError) as error:
        if raw.removeprefix(BOM_UTF8).strip() in (b"{", b"["):
            found = f"{where} begins JSON that goes on in other lines"
            raise RolloutError(f"{found}; expected one object a line") from None
        found = reprlib.repr(raw.decode(errors="replace").strip())
        raise RolloutError(f"{where} is {found}, which is not JSON ({error}); {wanted}") from None
    if isinstance(row, list) and row and isinstance(row[0], dict):
        raise RolloutError(f"{where} is a list of {len(row)} objects; expected one object a line")
    if isinstance(row, dict) and solution not in row and TURNS in row:
        if (text := _text_of(row[TURNS])) is None:
            wanted = f'expected {{"{problem}": a text, "{TURNS}": a list of turns or of messages}}'
            raise RolloutError(f"{where} has {reprlib.repr(row[TURNS])} as {TURNS!r}; {wanted}")
        row[TURNS], solution = text, TURNS
    for key in (problem, solution):
        if not isinstance(row, dict) or key not in row:
            way_out = f"{wanted}; name other keys in [node.NAME.engine] problem and solution"
            raise RolloutError(f"{where} is {reprlib.repr(row)}, without {key!r}; {way_out}")
    texts = row[solution] if isinstance(row[solution], list) else [row[solution]]
    for key, values in ((problem, [row[problem]]), (solution, texts)):
        if not values or not all(isinstance(v, str) and v.strip() for v in values):
            raise RolloutError(f"{where} has {reprlib.repr(row[key])} as {key!r}; {wanted}")
    return row[problem].strip(), solution, texts


def _text_of(turns: Any) -> str | None:
    """Write turns as text, given as ``episode.text_of`` lists them or as messages, of which those
    of others are left out; None if they are neither."""
    made: list[Turn | None]
    try:
        made = [*msgspec.convert(turns, list[Turn])]
    except msgspec.ValidationError:
        try:
            messages = msgspec.convert(turns, list[dict[str, Any]])
        except msgspec.ValidationError:
            return None
        made = [turn_in(each) for each in messages if each.get("role") == "assistant"]
    text = text_of([turn for turn in made if turn])
    return text if all(made) and turns_in(text) else None
