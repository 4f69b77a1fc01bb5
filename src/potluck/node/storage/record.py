"""A node's folder: for people, for plots, and for going on after a crash.

<run>/<node>/metrics.jsonl        one line a round, see RoundReport
<run>/<node>/evaluation.jsonl     one line an evaluation
<run>/<node>/completions.jsonl    what was written, readable
<run>/<node>/problems.jsonl       their questions and right answers, each once
<run>/<node>/recorded.jsonl       some of them token by token, see potluck/reports/tokens.py
<run>/<node>/events.jsonl         what was told to the user, and when (launch/journal.py)
<run>/<node>/status.json          what the node is doing now, see potluck/reports/status.py
<run>/<node>/cost.json, cost.log  what an author has spent, see rollout/texts/base.py
<run>/<node>/in_step.jsonl        one line a round that it began in step with others: the time;
                                  again when the clock was set back since
<run>/<node>/written.jsonl        at pace = "free", one line a round: the problems that it wrote,
                                  with the rewards of its completions
<run>/<node>/taken.json           at pace = "free", the newest round that it took of each author
<run>/<node>/rounds/000012.ptlk   what was learned from, the messages as they came: what
                                  resume (and replay) reads, see exchange/wire/codec.py
<run>/<node>/checkpoints/000010/  see checkpoint.py
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import compress
from pathlib import Path
from typing import Any

import msgspec

from potluck.exchange import Round, WireError, batches_of, decode_round, encode_round
from potluck.files import append, both_ends, printable, sealed, sum_of, unsealed, write_atomically
from potluck.reports.runs import LONGEST_QUESTION, read_lines, read_problems
from potluck.reports.tokens import Recorded
from potluck.types import Problem

READ_BACK = ("metrics", "completions", "written", "in_step")
"""Files of lines that decide how a resumed run goes on; the others are for people."""
Heads = Mapping[str, tuple[int, str]]
"""How far such files went, in bytes, and the SHA-256 of all before."""
REMEMBERED = 2 * 64
"""Rounds whose batches a restarted node still knows: more than the others keep."""
RECORDED = 0.15
"""Size of recorded.jsonl as a share of the files of the rounds, at most."""


class Record:
    """One node's folder. Every line and every file is whole, or is not there."""

    def __init__(self, folder: Path, *, run: str, node: str) -> None:
        self.folder, self.run, self.node = folder, run, node
        self._room_bytes = 0.0
        self._with_line: set[str] | None = None
        (folder / "rounds").mkdir(parents=True, exist_ok=True)

    def keep_round(self, round: int, arrived: Round) -> int:
        """Store the messages that the round is learned from; return the size in bytes."""
        data = encode_round(round, self.node, arrived)
        write_atomically(self._round_file(round), data)
        return len(data)

    def kept_round(self, round: int) -> Round | None:
        """Read the round as it was kept; None if it is not here, or is damaged."""
        try:
            data = self._round_file(round).read_bytes()
            return decode_round(data, run=self.run, round=round, node=self.node)
        except (FileNotFoundError, IsADirectoryError, WireError):
            return None

    def next_kept(self, round: int) -> int | None:
        """Find the first kept round from ``round`` on; None if there is none."""
        later = (at for at in self._rounds() if at >= round)
        return next((at for at in later if self.kept_round(at) is not None), None)

    def damaged_rounds(self, first: int) -> list[Path]:
        """List the files of rounds that are read back after ``first`` rounds, and cannot be."""
        read = [at for at in self._rounds() if at >= first - REMEMBERED]
        return [self._round_file(at) for at in read if self.kept_round(at) is None]

    def batches(self, newest: int) -> dict[tuple[str, int], bytes]:
        """Read the batches of the last ``newest`` rounds here, by author and round."""
        pages = map(self.kept_round, self._rounds()[-newest:])
        return {key: data for page in pages if page for key, data in batches_of(page).items()}

    def add_taken(self) -> None:
        """Note the rounds of others that the newest stored round holds: none of them, nor one
        before, is to be taken again, unless their author begins anew."""
        write_atomically(self.folder / "taken.json", sealed(self.taken()))

    def taken(self) -> dict[str, int]:
        """Read the newest round of each author that was taken, this node's own among them."""
        newest: dict[str, int] = {}
        with suppress(OSError, ValueError, RecursionError, msgspec.ValidationError):
            data = (self.folder / "taken.json").read_bytes()
            newest = msgspec.convert(unsealed(data), dict[str, int])
        last: dict[str, int] = {}
        # A crash may have come between the two files; what is damaged is found in the rounds.
        for author, round in self.batches(1 if newest else REMEMBERED):
            last[author] = max(last.get(author, -1), round)
        return newest | last

    def size(self, round: int) -> int:
        """Measure the round's file, in bytes."""
        return self._round_file(round).stat().st_size

    def add(self, name: str, rows: Sequence[dict[str, Any]]) -> None:
        """Add lines to ``name``.jsonl, all of them or none."""
        lines = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)
        append(self._lines(name), lines.encode())

    def add_problems(self, round: int, problems: Iterable[Problem]) -> None:
        """Add the question and right answer of each problem that has no line yet, for people."""
        if self._with_line is None:
            self._with_line = {*read_problems(self.folder, None)}
        lines = {
            p.id: {
                "round": round,
                "problem": p.id,
                "question": both_ends(p.question, LONGEST_QUESTION),
                "answer": both_ends(p.answer, LONGEST_QUESTION),
            }
            for p in problems
            if p.id not in self._with_line
        }
        self.add("problems", [*lines.values()])
        self._with_line |= lines.keys()

    def room_for_sample(self, size_bytes: int) -> float:
        """Add a share of ``size_bytes``, a round's file, to the room for records, and return it."""
        self._room_bytes += RECORDED * size_bytes
        return self._room_bytes

    def add_sample(self, completions: Sequence[Recorded]) -> None:
        """Add lines to recorded.jsonl, all of them or none."""
        data = b"".join(msgspec.json.encode(each) + b"\n" for each in completions)
        append(self._lines("recorded"), data)
        self._room_bytes -= len(data)

    def first(self, name: str, key: str) -> Any:
        """Find the first value of ``key`` in ``name``.jsonl that is not null, or None."""
        return next((v for line in self.each(name) if (v := line.get(key)) is not None), None)

    def each(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield the lines of ``name``.jsonl, one at a time; none if there is no such file."""
        return read_lines(self._lines(name), dict[str, Any])

    def truncate_from(self, round: int, heads: Heads) -> list[str]:
        """Remove every line of this round and later ones, as they will be run again: all after
        ``heads``. Return where lines were that cannot be read, which go as well."""
        damaged = []
        for path in sorted(self.folder.glob("*.jsonl")):
            # Of bytes: a text may have other ends of lines in it, such as U+2028.
            lines = path.read_bytes().splitlines(keepends=True)
            rounds = [_round_of(line) for line in lines]
            if wrong := [str(at) for at, its in enumerate(rounds, 1) if its is None]:
                damaged.append(f"{path}, line {printable(', '.join(wrong), 40)}")
            before = [its is not None and its < round for its in rounds]
            size = heads[path.stem][0] if path.stem in heads else None
            data = b"".join(compress(lines, before) if size is None else lines)
            write_atomically(path, data[:size])
        return damaged

    def _lines(self, name: str) -> Path:
        return self.folder / f"{name}.jsonl"

    def _rounds(self) -> list[int]:
        names = (path.stem for path in (self.folder / "rounds").glob("[0-9]*.ptlk"))
        return sorted(int(name) for name in names if name.isdecimal())

    def _round_file(self, round: int) -> Path:
        return self.folder / "rounds" / f"{round:06d}.ptlk"


def heads_of(folder: Path) -> dict[str, tuple[int, str]]:
    """Sum up what a node's files that are read back hold by now."""
    there = [each for each in folder.glob("*.jsonl") if each.stem in READ_BACK]
    return {file.stem: (file.stat().st_size, sum_of(file)) for file in there}


def unlike(folder: Path, heads: Heads) -> Path | None:
    """Find a file that does not begin with what it held when ``heads`` were taken."""
    for file, (size, total) in ((folder / f"{name}.jsonl", head) for name, head in heads.items()):
        if not file.is_file() or sha256(file.read_bytes()[:size]).hexdigest() != total:
            return file
    return None


def _round_of(line: bytes) -> int | None:
    """Read the line's round; None of one that a crash cut short, or a disk damaged."""
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        return int(json.loads(line)["round"])
    return None
