"""Completions of a node: found by a table of where each round stands in the files.

Text stays in the files: a page that shows a round reads that round. ``recorded.jsonl`` has a sample
of the completions with their tokens.
"""

import threading
from bisect import bisect_right
from collections.abc import Container
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from potluck.reports.runs import COMPLETIONS, PROBLEMS, RECORDED, GradedProblem, WrittenCompletion
from potluck.reports.tail import DAMAGED, Change, Tail, newest, open_regular
from potluck.reports.tokens import Recorded
from potluck.show.web.views import TextsView, TextView

MOST_ROUNDS = 1000
MOST_TEXTS = 256
"""Completions of one answer."""
PROBLEM_BYTES, ROUND_BYTES = 64 << 20, 4 << 20
"""Most of the problems that is read, from the file's end; most of a round."""
TEXT, ANSWER_BYTES = 20_000, 5_000_000
"""Longest text, question, answer and episode; most of one answer."""

_Key = tuple[int, str, str, int]
_Kind = TypeVar("_Kind", bound=WrittenCompletion | Recorded)


class _Line(msgspec.Struct):
    round: int


class _Index(Generic[_Kind]):
    """The stretches of a file that hold each round."""

    def __init__(self, path: Path, kind: type[_Kind]) -> None:
        self.path, self._kind = path, kind
        self._tail = Tail(path, _Line)
        self.stretches: dict[int, list[tuple[int, int]]] = {}
        """Offsets (start, end) of each round's lines."""

    def look(self) -> None:
        if self._tail.look() is Change.ANEW:
            self.stretches.clear()
        for (start, end), line in self._tail.read_placed():
            found = self.stretches.setdefault(line.round, [])
            if found and found[-1][1] == start:
                start, _ = found.pop()
            found.append((start, end))

    def size(self, round: int) -> int:
        return sum(end - start for start, end in self.stretches.get(round, ()))

    def lines(self, round: int) -> dict[_Key, _Kind]:
        """Read a round's lines, of its first ROUND_BYTES; a later one replaces an earlier one."""
        opened, most, found = open_regular(self.path), ROUND_BYTES, dict[_Key, _Kind]()
        if opened is None:
            return found
        with opened as file, suppress(OSError):
            for start, end in self.stretches.get(round, ()):
                file.seek(start)
                data = file.read(min(end - start, most))
                most -= len(data)
                for text in data.splitlines():
                    with suppress(*DAMAGED):
                        line = msgspec.json.decode(text, type=self._kind)
                        found[_key(line)] = line
        return found


class NodeTexts:
    """One node's completions; the files are read through when somebody first asks."""

    def __init__(self, folder: Path) -> None:
        self.node, self._folder = folder.name, folder
        self._written = _Index(folder / COMPLETIONS, WrittenCompletion)
        self._recorded = _Index(folder / RECORDED, Recorded)
        self._lock = threading.Lock()

    def of_round(self, round: int | None) -> TextsView:
        """Return the completions of a round, of the newest one if it is None."""
        with self._lock:
            self._written.look()
            self._recorded.look()
            rounds = sorted(self._written.stretches)
            at = round if round is not None else rounds[-1] if rounds else 0
            found, recorded = self._written.lines(at), self._recorded.lines(at)
            texts = [_text(line, recorded.get(key)) for key, line in found.items()][:MOST_TEXTS]
            problems = self._problems({text.problem for text in texts})
            whole = [msgspec.structs.replace(t, **problems.get(t.problem, {})) for t in texts]
            sizes = accumulate(len(msgspec.json.encode(text)) for text in whole)
            fit = bisect_right([*sizes], ANSWER_BYTES)
            return TextsView(
                node=self.node,
                rounds=rounds[-MOST_ROUNDS:],
                texts=whole[:fit],
                is_cut=fit < len(found) or self._written.size(at) > ROUND_BYTES,
            )

    def _problems(self, wanted: Container[str]) -> dict[str, dict[str, str]]:
        # A folder of 0.2.0 has no such file: there the texts keep what recorded.jsonl has.
        asked = newest(self._folder / PROBLEMS, GradedProblem, PROBLEM_BYTES)
        return {
            each.problem: {"question": each.question[:TEXT], "answer": each.answer[:TEXT]}
            for each in asked
            if each.problem in wanted
        }


def _key(line: WrittenCompletion | Recorded) -> _Key:
    return line.round, line.problem, line.author, line.index


def _text(line: WrittenCompletion, recorded: Recorded | None) -> TextView:
    starts = accumulate((len(said.words) for said in line.turns), initial=0)
    turns = zip(line.turns, starts, strict=False)
    return TextView(
        round=line.round,
        problem=line.problem,
        author=line.author,
        index=line.index,
        reward=line.reward,
        text=line.text[:TEXT],
        end=line.end,
        question=recorded.question[:TEXT] if recorded else "",
        turns=[(said.role, said.words[: TEXT - at]) for said, at in turns if at < TEXT],
        recorded=recorded,
    )
