"""Run folders for the tests of the page, and changes to them as a node makes them."""

import json
import time
from pathlib import Path

import msgspec

from potluck.reports.status import FolderStatus, StatusLine
from potluck.reports.tokens import columns_of
from show.terminal import run_folders
from show.terminal.run_folders import metrics


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def append(file: Path, *rows):
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as out:
        out.write(lines(rows))


def completion(round, author="small", index=0, **changes):
    row = {"round": round, "problem": "digits/1+2", "author": author, "index": index}
    return {**row, "reward": 1.0, "end": "stop", "text": "3", **changes}


def recorded(round, surprise, **changes):
    row = {"round": round, "problem": "digits/1+2", "author": "small", "index": 0}
    told = {"question": "1+2=", "advantage": 1.0, "kept": 0.5, "why": "P is 0.5"}
    return {**row, **told, **columns_of(["3"], [-0.25]), "surprise": surprise, **changes}


def make_run(folder, *nodes, rounds=3, **changes):
    """Write a run of these nodes, with some rounds of each; return its folder."""
    told = {"rounds": map(metrics, range(rounds)), "completions": map(completion, range(rounds))}
    told = {name: [*lines] for name, lines in told.items()}
    told["evaluations"] = [{"round": 0, "validation": 0.25}]
    return run_folders.make_run(folder, *nodes, **told, **changes)


def status(node, *, age_s=0.0, peers=None, **changes):
    own = StatusLine(node=node, run="my-run", time_s=time.time() - age_s, **changes)
    return FolderStatus(own=own, peers=peers or {})


def write_status(folder, node, **changes):
    (folder / node).mkdir(parents=True, exist_ok=True)
    file = folder / node / "status.json"
    file.write_bytes(msgspec.json.encode(status(node, **changes)))
