"""Completions of a node: found by a table of where each round stands in the files.

Text stays in the files: a page that shows a round reads that round. ``recorded.jsonl`` has a sample
of the completions with their tokens.
"""

import heapq
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from potluck.reports.tail import Change, Tail, open_regular
from potluck.reports.tokens import Recorded
from potluck.show.web.metrics import DAMAGED
from potluck.show.web.views import TextPlace, TextsView, TextView

MOST_ROUNDS, MOST_TEXTS, MOST_PLACES = 1000, 256, 200
MOST_INDEXED = 100_000
"""Rounds of a file that can be found."""
ROUND_BYTES = 4 << 20
"""Most of a round that is read at once."""
SEARCH_BYTES = 64 << 20
"""Most that one search reads."""
TEXT, NAME = 20_000, 200
"""Longest text and name that are shown."""


class _Place(msgspec.Struct):
    round: int
    problem: str = ""
    author: str = ""
    index: int = 0
    surprise: float | None = None


class _Written(_Place):
    """A line of completions.jsonl."""

    reward: float = 0.0
    text: str = ""
    end: str = ""


_decode_round = msgspec.json.Decoder(_Place).decode
_decode_written = msgspec.json.Decoder(_Written).decode
_decode_recorded = msgspec.json.Decoder(Recorded).decode
_Key = tuple[int, str, str, int]


class _Index:
    """The stretches of a file that hold each round."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._tail = Tail(path, msgspec.Raw)
        self.stretches: dict[int, list[tuple[int, int]]] = {}
        """Offsets (start, end) of each round's lines."""
        self.surprising: list[tuple[float, _Key]] = []
        """A heap of the largest."""

    def look(self) -> None:
        change = self._tail.look()
        if change is Change.ANEW:
            self.stretches.clear()
            self.surprising.clear()
        if change is Change.NOTHING:
            return
        for start, text in self._tail.lines():
            try:
                line = _decode_round(text)
            except DAMAGED:
                continue
            if line.round not in self.stretches and len(self.stretches) >= MOST_INDEXED:
                continue
            end, found = start + len(text) + 1, self.stretches.setdefault(line.round, [])
            if found and found[-1][1] == start:
                found[-1] = (found[-1][0], end)
            else:
                found.append((start, end))
            if line.surprise is not None:
                item = (line.surprise, _key(line))
                push = heapq.heappushpop if len(self.surprising) >= MOST_PLACES else heapq.heappush
                push(self.surprising, item)

    def lines(self, round: int, most: int) -> Iterator[bytes]:
        """Yield a round's lines, of its first ``most`` bytes."""
        opened = open_regular(self.path)
        if opened is None:
            return
        with opened as file, suppress(OSError):
            for start, end in self.stretches.get(round, ()):
                file.seek(start)
                data = file.read(min(end - start, most))
                most -= len(data)
                yield from data.splitlines()


class NodeTexts:
    """One node's completions; the files are read through when somebody first asks."""

    def __init__(self, folder: Path) -> None:
        self.node = folder.name
        self._written, self._recorded = (
            _Index(folder / f"{name}.jsonl") for name in ("completions", "recorded")
        )
        self._lock = threading.Lock()

    def of_round(self, round: int | None) -> TextsView:
        """Return the completions of a round, of the newest one if it is None."""
        with self._lock:
            self._look()
            rounds = sorted(self._written.stretches)
            at = round if round is not None else rounds[-1] if rounds else 0
            texts = self._texts(at, MOST_TEXTS + 1)
            size = sum(end - start for start, end in self._written.stretches.get(at, ()))
            is_cut = len(texts) > MOST_TEXTS or size > ROUND_BYTES
            return self._view(texts[:MOST_TEXTS], is_cut=is_cut)

    def search(self, words: str) -> TextsView:
        """Return completions whose text, problem or author has ``words``, the newest first."""
        wanted, found, left = words[:NAME].casefold(), list[TextView](), SEARCH_BYTES
        with self._lock:
            self._look()
            for round in sorted(self._written.stretches, reverse=True) if wanted else ():
                left -= sum(end - start for start, end in self._written.stretches[round])
                keys = [
                    _key(line)
                    for line in self._lines_of(round)
                    if any(wanted in it.casefold() for it in (line.text, line.problem, line.author))
                ]
                if keys:
                    its = {_key_of(text): text for text in self._texts(round, len(keys), set(keys))}
                    found += its.values()
                if left < 0 or len(found) > MOST_TEXTS:
                    return self._view(found[:MOST_TEXTS], is_cut=True)
            return self._view(found, is_cut=False)

    def _look(self) -> None:
        self._written.look()
        self._recorded.look()

    def _view(self, texts: list[TextView], *, is_cut: bool) -> TextsView:
        return TextsView(
            node=self.node,
            rounds=sorted(self._written.stretches)[-MOST_ROUNDS:],
            texts=texts,
            surprising=[
                TextPlace(round=key[0], problem=key[1], author=key[2], index=key[3], surprise=most)
                for most, key in sorted(self._recorded.surprising, reverse=True)
            ],
            is_cut=is_cut,
        )

    def _lines_of(self, round: int) -> Iterator[_Written]:
        for text in self._written.lines(round, ROUND_BYTES):
            try:
                yield _decode_written(text)
            except DAMAGED:
                continue

    def _texts(self, round: int, most: int, only: set[_Key] | None = None) -> list[TextView]:
        recorded: dict[_Key, Recorded] = {}
        for text in self._recorded.lines(round, ROUND_BYTES):
            try:
                line = _decode_recorded(text)
            except DAMAGED:
                continue
            recorded[_key(line)] = line
        # A later line replaces an earlier one.
        found = {_key(x): x for x in self._lines_of(round) if only is None or _key(x) in only}
        chosen = list(found.items())
        if len(chosen) > most:  # those with tokens first: they say most
            chosen.sort(key=lambda item: item[0] not in recorded)
        return [_text(line, recorded.get(key)) for key, line in chosen[:most]]


def _key(line: _Place | Recorded) -> _Key:
    return line.round, line.problem[:NAME], line.author[:NAME], line.index


def _key_of(text: TextView) -> _Key:
    return text.round, text.problem, text.author, text.index


def _text(line: _Written, recorded: Recorded | None) -> TextView:
    shown = TextView(
        round=line.round,
        problem=line.problem[:NAME],
        author=line.author[:NAME],
        index=line.index,
        reward=line.reward,
        text=line.text[:TEXT],
        end=line.end[:NAME],
    )
    if recorded is None:
        return shown
    return msgspec.structs.replace(
        shown,
        question=recorded.question[:TEXT],
        advantage=recorded.advantage,
        kept_advantage=recorded.kept,
        why=recorded.why[:NAME],
        tokens=_tokens(recorded),
        measure=recorded.measure,
        surprise=recorded.surprise,
    )


def _tokens(recorded: Recorded) -> list[tuple[str, float | None]]:
    try:
        return recorded.tokens()
    except ValueError:  # its columns do not fit each other
        return []
