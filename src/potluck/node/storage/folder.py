"""A run's folder: names in it that several rooms know, its lock, and errors of the disk."""

import errno
import json
import os
import shlex
import shutil
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from potluck.files import JOINED, LOCAL_SWARM, OF_WRITES, remedy
from potluck.types import RunFolderError

ENVIRONMENT = "environment.json"
"""In a run's folder, or in that of a node with a process of its own: how its environment was
found to be (``tasks/environments/check.py``)."""
LOCK = ".lock"
"""Name of the file in a folder whose lock a process holds while it writes there."""
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
"""Errors of a file system that has no locks."""


def has_no_round(folder: Path) -> bool:
    """Tell whether ``folder`` holds only a run that finished no round: nothing is lost with it."""
    try:
        nodes = list(json.loads((folder / "recipe.json").read_bytes())["node"])
        there = {each.name for each in folder.iterdir() if each.suffix != ".part"}
    except (OSError, ValueError, TypeError, KeyError):
        return False
    lost = ("checkpoints/*", "metrics.jsonl", "cost.json")
    done = [each for name in nodes for its in lost for each in (folder / name).glob(its)]
    of_all = ("recipe.json", "task.json", ENVIRONMENT, LOCAL_SWARM, LOCK)
    return not done and there <= {*nodes, *of_all}


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
    """Tell whether it holds more than locks, empty folders and leftovers of failed starts."""
    if not folder.is_dir():
        return folder.exists()
    free = (LOCK, JOINED, ENVIRONMENT, LOCAL_SWARM)
    return any(each.name not in free and is_taken(each) for each in folder.iterdir())


def rounds_saved(folder: Path) -> list[int]:
    """List the rounds that have a checkpoint, oldest first."""
    places = (folder / "checkpoints").glob("[0-9]*/state.json")
    return sorted(int(p.parent.name) for p in places if p.parent.name.isdigit())


def remove_parts(folder: Path) -> None:
    """Remove unfinished parts from a node's folder; no other process may be writing there."""
    for part in (*folder.glob("*.part"), *folder.glob("*/*.part")):
        if part.is_dir():
            shutil.rmtree(part)
        else:
            part.unlink()


@contextmanager
def exclusive(folder: Path, notify: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock of ``folder``, made for it and removed if it stays empty; the kernel takes it
    back however the process ends. At the end the lock's file holds what it held before, so that a
    refused command changes nothing. Raise RunFolderError if another process holds the lock."""
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunFolderError(
            f"cannot make the folder {folder}: {error.strerror}; name another one with --out"
        ) from error
    file = folder / LOCK
    lock = FileLock(file, timeout=0, fallback_to_soft=False)
    text = ""
    try:
        lock.acquire()
        text = file.read_text(errors="replace")
        file.write_text(f"process {os.getpid()} on {socket.gethostname()}\n")
    except Timeout:
        holder = file.read_text(errors="replace").strip() or "another process"
        raise RunFolderError(
            f"{folder} is in use by {holder}; wait for its end, end it, or name another with --out"
        ) from None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        notify(f"{folder} is on a file system without locks: let no second process use it")
    try:
        yield
    finally:
        with suppress(OSError):  # as when somebody removed the folder, or uses one around it
            file.write_text(text)
            if [each.name for each in folder.iterdir()] == [LOCK]:  # nothing was begun
                file.unlink()
                for each in made:
                    each.rmdir()
        lock.release()


def forget_failed_start(folder: Path, nodes: Iterable[str], notify: Callable[[str], None]) -> None:
    """Clear the folder of a run that finished no round, but for locks; the caller holds the
    folder's own one. Raise RunFolderError if a node of it is still going."""
    with ExitStack() as stack:
        for name in nodes:
            if (folder / name).is_dir():
                stack.enter_context(exclusive(folder / name, notify))
        if has_no_round(folder):
            for each in folder.rglob("*"):
                if each.is_file() and each.name != LOCK:
                    each.unlink()
            notify(f"{folder} held a run that finished no round; it is begun anew")


@contextmanager
def disk_errors_explained(folder: Path) -> Iterator[None]:
    """Turn an OSError into a RunFolderError that says which file it was, what happened, and how to
    go on; ``folder`` is the run's, and stands for a file that the error does not name."""
    try:
        yield
    except OSError as error:
        if not (way := remedy(error)):
            raise
        again = "go on with --resume" if (folder / "recipe.json").is_file() else "start it again"
        what = f"{'cannot write ' * (error.errno in OF_WRITES)}{error.filename or folder}"
        raise RunFolderError(f"{what}: {error.strerror}; {way}, then {again}") from error
