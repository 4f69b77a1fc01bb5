"""A run's folder: the names in it that several rooms know, and what a process may clear away."""

import json
import os
import shlex
import shutil
import time
from contextlib import suppress
from pathlib import Path

from potluck.files import LOCAL_SWARM
from potluck.types import RunFolderError

JOINED = "join.json"
"""In a node's folder: the recipe that it joined with, its own key and addresses included."""
LOCK = ".lock"
"""Name of the file in a folder whose lock a process holds while it writes there."""
A_WRITE_S = 60.0
"""A whole file takes less to write."""


def has_no_round(folder: Path) -> bool:
    """Tell whether ``folder`` holds only a run that finished no round: nothing is lost with it."""
    try:
        nodes = list(json.loads((folder / "recipe.json").read_bytes())["node"])
        there = {each.name for each in folder.iterdir()}
    except (OSError, ValueError, TypeError, KeyError):
        return False
    lost = ("checkpoints/*", "metrics.jsonl", "cost.json")
    done = [each for name in nodes for its in lost for each in (folder / name).glob(its)]
    return not done and there <= {*nodes, "recipe.json", "task.json", LOCAL_SWARM, LOCK}


def require_free(folder: Path, resume: bool) -> None:
    """Raise RunFolderError unless ``folder`` is free, or, to ``resume``, holds a run."""
    if resume and not (folder / "recipe.json").exists():
        why = "there is no recipe.json; leave --resume out to start one"
        raise RunFolderError(f"{folder} holds no run to resume: {why}")
    if resume or has_no_round(folder) or not is_taken(folder):
        return
    raise RunFolderError(
        f"{folder} exists; --resume goes on with that run, --out names another folder, and "
        f"`rm -r {shlex.quote(str(folder))}` forgets it"
    )


def is_taken(folder: Path) -> bool:
    """Tell whether there is more than locks, folders for them, and what starts that came to
    nothing left."""
    if not folder.is_dir():
        return folder.exists()
    free = (LOCK, JOINED, LOCAL_SWARM)
    return any(each.name not in free and is_taken(each) for each in folder.iterdir())


def remove_parts(folder: Path) -> None:
    """Remove what a killed process left of unfinished files and folders in the folder of a node;
    no other process may be writing there."""
    for part in (*folder.glob("*.part"), *folder.glob("*/*.part")):
        if part.is_dir():
            shutil.rmtree(part)
        else:
            part.unlink()


def remove_parts_of_the_dead(folder: Path) -> None:
    """Remove what processes that are gone left of unfinished files in a folder that several write
    to. Those of another machine cannot be seen, so what a living one may be writing stays."""
    for part in folder.glob("*.[0-9]*.part"):
        with suppress(FileNotFoundError):  # as another node removed it, or has finished it
            is_old = time.time() - part.stat().st_mtime > A_WRITE_S
            if is_old and not _is_alive(int(part.suffixes[-2][1:])):
                part.unlink()


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except PermissionError:  # another user's
        return True
    except ProcessLookupError:
        return False
    return True
