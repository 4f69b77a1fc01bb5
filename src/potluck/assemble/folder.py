"""A run's folder: free, or that of the run that goes on."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from potluck.config import (
    RunConfig,
    as_tree,
)
from potluck.node import (
    RunFolderError,
    checkpoint,
)
from potluck.tasks import (
    Task,
)

MAY_CHANGE = ("rounds", "checkpoint_every", "threads", "deadline_s", "log")
"""What a resumed run may have otherwise than the run that it goes on with."""
OF_A_PLACE = re.compile(
    r"node\.[^.]+\.server\..+"
    r"|swarm\.(listen|connect|tls.*|key|roster|cohort|kept_rounds|gather_s|quarantine_s)"
)
"""May change too: a scheduler starts servers and nodes on other machines each time."""


def go_on_from(folder: Path, config: RunConfig, first: int) -> str:
    """Takes what is newer than ``first`` rounds out of the way; returns what to say about it.

    Checkpoints of rounds that will be lived again would push the new ones out.
    """
    for name in config.node:
        checkpoint.forget_after(folder / name, first)
    if not first:
        return "no checkpoint stands that every node has: beginning anew, rounds on disk are reused"
    here = checkpoint.circumstances()
    was = [checkpoint.circumstances_of(folder / name, first) for name in config.node]
    odd = next((made for made in was if made != here), None)
    changed = f"; it was made with {odd}, this is {here}: not the same bits" if odd else ""
    return f"going on after {first} rounds{changed}"


def require_folder(folder: Path, config: RunConfig, resume: bool) -> None:
    """Raises RunFolderError unless ``folder`` is free, or, to ``resume``, is this run's."""
    if not resume:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise RunFolderError(
                f"{folder} exists; --resume goes on with that run, --out names another folder"
            )
        return
    try:
        was = json.loads((folder / "recipe.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunFolderError(
            f"{folder} holds no run to resume ({error}); leave --resume out to start one"
        ) from error
    if not isinstance(was, dict):
        raise RunFolderError(f"{folder}/recipe.json is no recipe; start another run with --out")
    if (done := first_round(folder, config)) > config.rounds:
        raise RunFolderError(
            f"{folder} has {done} rounds, but the recipe has rounds = {config.rounds}; raise it"
        )
    _require_no_difference(folder, was, config, resume=True)


def require_node_folder(folder: Path, config: RunConfig, name: str, resume: bool) -> None:
    """Raises RunFolderError unless the part of ``folder`` that is the node's is free, or, to
    ``resume``, its own, and what else is there is of the same run."""
    own = folder / name
    if not resume and own.exists() and (not own.is_dir() or any(own.iterdir())):
        raise RunFolderError(
            f"{own} exists; --resume goes on with that node, --out names another folder"
        )
    if resume and not own.is_dir():
        raise RunFolderError(f"{own} holds no node to resume; leave --resume out to start one")
    try:
        was = json.loads((folder / "recipe.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{folder}/recipe.json cannot be read: {error}") from error
    _require_no_difference(folder, was, config, resume=resume, name=name)


def _require_no_difference(
    folder: Path, was: Any, config: RunConfig, *, resume: bool, name: str = ""
) -> None:
    """Of all nodes, or of ``name`` and what they share."""
    tree = json.loads(json.dumps(as_tree(config)))
    for key, old, new in _differences(was, tree):
        if key.partition(".")[0] in MAY_CHANGE or OF_A_PLACE.fullmatch(key):
            continue
        if name and key.startswith("node.") and key.split(".")[1] != name:
            continue  # another node's own affair
        if name and key == f"node.{name}":
            raise RunFolderError(
                f"{folder} is of a run whose recipe has no node {name!r}; name a folder of its own "
                f"with --out"
            )
        again = "resume with the old value" if resume else "join with the old value"
        raise RunFolderError(
            f"{folder} was made with {key} = {old}, but the recipe now has {key} = {new}; "
            f"{again}, or start another run with --out"
        )


def require_same_task(folder: Path, task: Task) -> None:
    """Raises RunFolderError where ``folder`` holds a run on other problems, or graded otherwise.

    A recipe names files, so it may be the same while what they hold is not.
    """
    try:
        was = json.loads((folder / "task.json").read_text(encoding="utf-8"))["digest"]
    except (OSError, ValueError, TypeError, KeyError):  # no run there, or one of an older version
        return
    if was != task.digest:
        raise RunFolderError(
            f"{folder} was made with a task of digest {str(was)[:12]}, which now is "
            f"{task.digest[:12]}: its data or the code of its rewards has changed; put back what "
            f"was there, or start another run with --out"
        )


def _differences(was: Any, now: Any, at: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(key, old, new) of every leaf that is not equal in two trees; None where there is none."""
    if not (isinstance(was, dict) and isinstance(now, dict)):
        if was != now:
            yield at, was, now
        return
    for key in dict.fromkeys([*was, *now]):
        yield from _differences(was.get(key), now.get(key), f"{at}.{key}" if at else key)


def first_round(folder: Path, config: RunConfig) -> int:
    """Rounds that every node has a checkpoint of; 0: none has, so the run begins anew."""
    saved = [set(checkpoint.rounds_saved(folder / name)) for name in config.node]
    return max(set.intersection(*saved), default=0)
