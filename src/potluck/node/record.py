"""What a node leaves in its folder: for people, for plots, and for going on after a crash.

<run>/<node>/metrics.jsonl        one line a round, see RoundReport
<run>/<node>/evaluation.jsonl     one line an evaluation
<run>/<node>/completions.jsonl    what was written, readable
<run>/<node>/rounds/000012.ptlk   what was learned from, the messages as they came: what
                                  resume (and replay) reads, see exchange/page.py
<run>/<node>/checkpoints/000010/  see checkpoint.py
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from potluck.exchange import Round, WireError, batches_of, decode_page, encode_page


class Record:
    """One node's folder. Every line and every file is whole, or is not there."""

    def __init__(self, folder: Path, *, run: str, node: str) -> None:
        self.folder, self.run, self.node = folder, run, node
        (folder / "rounds").mkdir(parents=True, exist_ok=True)

    def keep_round(self, round: int, arrived: Round) -> int:
        """Stores what the round is learned from; returns the size in bytes."""
        data = encode_page(round, self.node, arrived)
        write_whole(self._round_file(round), data)
        return len(data)

    def kept_round(self, round: int) -> Round | None:
        """What the round was learned from; None if it is not here, or cannot be read."""
        try:
            data = self._round_file(round).read_bytes()
            return decode_page(data, run=self.run, round=round, node=self.node)
        except (FileNotFoundError, IsADirectoryError, WireError):
            return None

    def next_kept(self, round: int) -> int | None:
        """The first round from ``round`` on that is here; None if there is none."""
        names = (path.stem for path in (self.folder / "rounds").glob("[0-9]*.ptlk"))
        later = sorted(int(name) for name in names if name.isdecimal() and int(name) >= round)
        return next((at for at in later if self.kept_round(at) is not None), None)

    def batches(self, newest: int) -> dict[tuple[str, int], bytes]:
        """Of author and round, what the last ``newest`` rounds here were learned from."""
        files = sorted((self.folder / "rounds").glob("[0-9]*.ptlk"))[-newest:]
        pages = (self.kept_round(int(file.stem)) for file in files if file.stem.isdecimal())
        return {key: data for page in pages if page for key, data in batches_of(page).items()}

    def size(self, round: int) -> int:
        """Bytes of the round's file."""
        return self._round_file(round).stat().st_size

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
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
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
