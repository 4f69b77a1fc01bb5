"""Solutions from a file of JSON lines: those of people, of a data set, of another run.

    {"problem": "What is 9 + 9?", "solution": "Nine and nine are <answer>18</answer>"}

One pass checks every line and keeps 16 bytes of it, so a file may be larger than the memory.
"""

import hashlib
import reprlib
from array import array
from codecs import BOM_UTF8
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

import msgspec
import numpy as np

from potluck.files import derived_seed
from potluck.rollout.base import Progress, Requests, RolloutError
from potluck.rollout.texts.base import NO_TOKENS, TextSettings, Written, can_be_read
from potluck.types import Completion, Problem

LONGEST_LINE_BYTES = 2**20
MOST_LINES = 2**25
"""Number of lines whose places are kept: 512 MiB."""


@dataclass(frozen=True, slots=True, eq=False)
class SolutionFile:
    """The places of all lines of a file, by their problem."""

    path: Path
    problem: str
    """Key of a line's problem: its id or its question."""
    solution: str
    """Key of a line's solutions."""
    digest_L: np.ndarray
    """[L] uint64, ascending: the first bytes of a hash of each line's problem."""
    offset_L: np.ndarray
    """[L] int64: where the line begins, in bytes."""

    @classmethod
    def read(cls, path: Path, problem: str, solution: str) -> "SolutionFile":
        """Read all of it; raise RolloutError if it is not there or a line is not as expected."""
        require_file(path)
        digests, offsets = array("Q"), array("q")
        at = 0
        try:
            with path.open("rb") as source:
                lines = iter(partial(source.readline, LONGEST_LINE_BYTES + 1), b"")
                for number, raw in enumerate(lines, start=1):
                    if raw.removeprefix(BOM_UTF8).strip() or len(raw) > LONGEST_LINE_BYTES:
                        where = f"{path}, line {number}"
                        digests.append(_digest(_read_line(raw, where, problem, solution)[0]))
                        offsets.append(at)
                    at += len(raw)
                    if len(digests) > MOST_LINES:
                        raise RolloutError(f"{path} has more than {MOST_LINES} lines; give fewer")
        except OSError as error:
            raise _unreadable(path, error) from error
        if not digests:
            wanted = f'expected lines of {{"{problem}": ..., "{solution}": ...}}'
            raise RolloutError(f"{path} holds no solution; {wanted}")
        digest_L, offset_L = np.array(digests, np.uint64), np.array(offsets, np.int64)
        order_L = digest_L.argsort(kind="stable")
        return cls(path, problem, solution, digest_L[order_L], offset_L[order_L])

    def solved(self, problems: Iterable[Problem]) -> int:
        """Count the problems that the file has a solution of."""
        return sum(len(self._places(problem)) > 0 for problem in problems)

    def solutions(self, problem: Problem, most: int, random: Random) -> list[str]:
        """Read the solutions of at most ``most`` lines of the problem: all, or drawn ones. Raise
        RolloutError if the file has changed since it was read."""
        places_L = self._places(problem)
        drawn = sorted(random.sample(range(len(places_L)), min(most, len(places_L))))
        found: list[str] = []
        try:
            with self.path.open("rb") as source:
                for offset in places_L[drawn].tolist():
                    source.seek(offset)
                    raw = source.readline(LONGEST_LINE_BYTES + 1)
                    where = f"{self.path}, which was changed since it was read, byte {offset}"
                    key, texts = _read_line(raw, where, self.problem, self.solution)
                    # Of two problems with one hash, the other one's line is left out.
                    found += texts if key in _keys(problem) else []
        except OSError as error:
            raise _unreadable(self.path, error) from error
        return found

    def _places(self, problem: Problem) -> np.ndarray:
        """Find the offsets of the problem's lines, in the order of the file."""
        digest_K = np.array([_digest(key) for key in _keys(problem)], np.uint64)
        first_K = np.searchsorted(self.digest_L, digest_K, side="left")
        last_K = np.searchsorted(self.digest_L, digest_K, side="right")
        parts = [self.offset_L[a:b] for a, b in zip(first_K, last_K, strict=True)]
        return np.unique(np.concatenate(parts))


class FileEngine:
    """An author that gives the solutions of a file; others in other rounds, where a problem has
    more of them than are asked for."""

    def __init__(self, file: SolutionFile, settings: TextSettings) -> None:
        self.file, self._settings, self._told = file, settings, False

    def write(self, requests: Requests, *, author: str, seed: int, progress: Progress) -> Written:
        written: list[Completion] = []
        total = sum(request.count for request in requests)
        for request in requests:
            problem = request.problem
            random = Random(derived_seed(f"{seed}/{problem.id}"))
            texts = self.file.solutions(problem, request.count, random)
            usable = [t for t in texts if can_be_read(t, self._settings.max_new_tokens)]
            if len(usable) < len(texts) and not self._told:
                self._told = True
                self._settings.notify(
                    f"{self.file.path} has solutions, of {problem.id!r} first, longer than "
                    f"{self._settings.max_new_tokens} tokens can be; they are left out"
                )
            drawn = sorted(random.sample(range(len(usable)), min(request.count, len(usable))))
            written += [
                Completion(problem.id, author, i, NO_TOKENS, None, "stop", usable[place])
                for i, place in enumerate(drawn)
            ]
            progress(len(written), total)
        return Written(tuple(written))


def require_file(path: Path) -> None:
    """Raise RolloutError unless ``path`` is a file: a pipe cannot be read twice."""
    if not path.is_file():
        raise RolloutError(
            f"there is no file {path}; expected JSON lines in [node.NAME.engine] path"
        )


def _unreadable(path: Path, error: OSError) -> RolloutError:
    return RolloutError(f"cannot read {path} ({error.strerror}); set [node.NAME.engine] path")


def _keys(problem: Problem) -> set[str]:
    return {problem.id.strip(), problem.question.strip()}


def _digest(key: str) -> int:
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little")


def _read_line(raw: bytes, where: str, problem: str, solution: str) -> tuple[str, list[str]]:
    """Read the line's problem and its solutions; raise RolloutError if it has none."""
    if len(raw) > LONGEST_LINE_BYTES:
        raise RolloutError(
            f"{where} has more than {LONGEST_LINE_BYTES} bytes; expected one problem a line"
        )
    wanted = f'expected {{"{problem}": a text, "{solution}": a text or a list of texts}}'
    try:
        row = msgspec.json.decode(raw.removeprefix(BOM_UTF8))
    except UnicodeDecodeError as error:
        found = f"byte {error.object[error.start]:#04x}"
        raise RolloutError(f"{where} has {found}, which is not UTF-8; save it as UTF-8") from None
    except (ValueError, RecursionError) as error:
        found = reprlib.repr(raw.decode(errors="replace").strip())
        raise RolloutError(f"{where} is {found}, which is not JSON ({error}); {wanted}") from None
    for key in (problem, solution):
        if not isinstance(row, dict) or key not in row:
            way_out = f"{wanted}; name other keys in [node.NAME.engine] problem and solution"
            raise RolloutError(f"{where} is {reprlib.repr(row)}, without {key!r}; {way_out}")
    texts = row[solution] if isinstance(row[solution], list) else [row[solution]]
    for key, values in ((problem, [row[problem]]), (solution, texts)):
        if not values or not all(isinstance(v, str) and v.strip() for v in values):
            raise RolloutError(f"{where} has {reprlib.repr(row[key])} as {key!r}; {wanted}")
    return row[problem].strip(), texts
