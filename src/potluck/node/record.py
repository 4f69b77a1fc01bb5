"""What a node leaves in its folder: for people, for plots, and for going on after a crash.

<run>/<node>/metrics.jsonl        one line a round, see RoundReport
<run>/<node>/evaluation.jsonl     one line an evaluation
<run>/<node>/completions.jsonl    what was written, readable
<run>/<node>/rounds/000012.ptlk   what was learned from, as one wire message: the record
                                  that resume (and replay) reads
<run>/<node>/checkpoints/000010/  see checkpoint.py
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from potluck.exchange import Message, WireError, decode, encode
from potluck.types import Completion, PotluckError


class RunFolderError(PotluckError):
    """A run folder that is in the way, or that is not what it was."""


class Record:
    """One node's folder. Every line and every file is whole, or is not there."""

    def __init__(self, folder: Path, *, run: str, node: str) -> None:
        self.folder, self.run, self.node = folder, run, node
        (folder / "rounds").mkdir(parents=True, exist_ok=True)

    def keep_round(self, round: int, completions: Sequence[Completion]) -> int:
        """Stores what the round is learned from; returns the size in bytes."""
        data = encode(Message(self.run, round, self.node, tuple(completions)))
        write_whole(self._round_file(round), data)
        return len(data)

    def kept_round(self, round: int) -> tuple[Completion, ...] | None:
        """What the round was learned from; None if it is not here, or cannot be read."""
        try:
            message = decode(self._round_file(round).read_bytes())
        except (FileNotFoundError, WireError):
            return None
        if (message.run, message.round, message.sender) != (self.run, round, self.node):
            return None
        return message.completions

    def add(self, name: str, rows: Sequence[dict[str, Any]]) -> None:
        """Adds lines to ``name``.jsonl."""
        lines = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)
        with (self.folder / f"{name}.jsonl").open("a", encoding="utf-8") as file:
            file.write(lines)

    def forget_from(self, round: int) -> None:
        """Takes back every line of this round and later ones: they will be lived again."""
        for path in self.folder.glob("*.jsonl"):
            text = path.read_text(encoding="utf-8", errors="replace")
            lines = text.splitlines(keepends=True)
            kept = [line for line in lines if _round_of(line) < round]
            write_whole(path, "".join(kept).encode())

    def _round_file(self, round: int) -> Path:
        return self.folder / "rounds" / f"{round:06d}.ptlk"


def write_whole(path: Path, data: bytes) -> None:
    """The whole file or none of it, whenever the machine stops."""
    beside = path.with_name(path.name + ".part")
    with beside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


def _round_of(line: str) -> float:
    """A line that a crash cut short counts as the future."""
    try:
        return float(json.loads(line)["round"])
    except (ValueError, KeyError, TypeError):
        return float("inf")
