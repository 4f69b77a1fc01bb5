"""A run's folder: free, or that of the run that goes on."""

from collections.abc import Iterator, Mapping
from math import inf
from pathlib import Path
from typing import Any

from potluck.config import ConfigError, RunConfig, as_tree, load
from potluck.files import SUMS, printable, unsealed
from potluck.node.storage import checkpoint
from potluck.node.storage.folder import is_taken, require_free
from potluck.node.storage.record import Record
from potluck.reports import RoundReport
from potluck.reports.runs import METRICS, read_lines
from potluck.types import RunFolderError

MAY_CHANGE = (
    *("rounds", "checkpoint_every", "keep_checkpoints", "keep_best", "stop_when"),
    *("threads", "deadline_s", "log", "control"),
)
"""Keys that a resumed run may have otherwise than the run that it goes on with."""
OF_A_MACHINE = (
    *("transport", "listen", "connect", "tls", "key", "roster", "cohort", "kept_rounds"),
    *("gather_s", "quarantine_s", "alone"),
)
"""Keys of [swarm] that may change too: a scheduler starts nodes on other machines each time."""
OF_FILES = {
    "digest": ("a task", "its data or the code of its rewards has"),
    "loss": ("an [objective] loss", "its file has"),
    "weight": ("an [objective] weight", "its file has"),
}
"""The owner of each key of task.json, and the part that has changed if its digest has."""


def prepare_resume(folder: Path, config: RunConfig, first: int) -> list[str]:
    """Delete what is newer than ``first`` rounds; return lines about it, and about damage."""
    here, odd, damage = checkpoint.reproducibility_info(), "", list[str]()
    for name in config.node:
        record = Record(folder / name, run=config.name, node=name)
        state = checkpoint.state_of(record.folder, first)
        if name in config.learners:  # checkpoints of repeated rounds would push the new ones out
            checkpoint.delete_after(record.folder, first)
            was = {key: state[key] for key in here if key in state}
            if was != here:
                odd = f"; it was made with {was}, this is {here}: not the same bits"
        lost = *record.truncate_from(first, state.get("lines", {})), *record.damaged_rounds(first)
        damage += [f"{where}: damaged, and left out" for where in lost]
    if not first:
        begun = "no checkpoint that every node has, so all start from their models; rounds whose "
        return [begun + "completions are on disk are learned again", *damage]
    return [f"going on after {first} rounds{odd}", *damage]


def require_folder(folder: Path, config: RunConfig, resume: bool, name: str = "") -> None:
    """Raise RunFolderError unless ``folder`` is free, or, to ``resume``, is this run's. With the
    ``name`` of a node only its part has to be so, and what else is there is of the same run."""
    own = folder / name
    if not name:
        require_free(folder, resume)
    elif not resume and is_taken(own):
        raise RunFolderError(f"{own} exists; --resume goes on with it, --out names another folder")
    elif resume and not own.is_dir():
        raise RunFolderError(f"{own} holds no node to resume; leave --resume out to start one")
    if (resume or name) and (folder / "recipe.json").exists():
        _require_no_difference(folder, config, resume=resume, name=name)


def _require_no_difference(folder: Path, config: RunConfig, *, resume: bool, name: str) -> None:
    """Raise RunFolderError if the run differs: in any node, or in ``name`` and what all share."""
    try:
        was = load(folder / "recipe.json")
    except ConfigError as error:
        raise RunFolderError(
            f"{folder} holds no recipe.json of a run ({error}); put that file back, as from "
            f"`potluck run RECIPE --check --json`, or start another run with --out"
        ) from error
    for key, old, new in _differences(as_tree(was), as_tree(config)):
        others = name and key.startswith("node.") and key.split(".")[1] != name
        if _may_change(key, config) or others:  # another node's keys are its own affair
            continue
        if name and key == f"node.{name}":
            why = f"is of a run whose recipe has no node {name!r}"
            raise RunFolderError(f"{folder} {why}; name a folder of its own with --out")
        raise RunFolderError(
            f"{folder} was made with {key} = {old}, but the recipe now has {key} = {new}; "
            f"{'resume' if resume else 'join'} with the old value, or start another run with --out"
        )


def _may_change(key: str, config: RunConfig) -> bool:
    match key.split("."):
        case ["objective", "alignment_every"]:  # it only reports
            return True
        case ["swarm", inner, *_]:
            return inner in OF_A_MACHINE
        case ["node", name, "engine", inner] if inner != "name" and name in config.node:
            return config.node[name].engine.may_change
        case [table, *_]:
            return table in MAY_CHANGE
    return False


def require_same_files(folder: Path, digests: Mapping[str, str]) -> None:
    """Raise RunFolderError where files that a recipe names have changed since the run in ``folder``
    was begun, while the recipe has not; ``digests`` are those of its task.json."""
    try:
        before = unsealed((folder / "task.json").read_bytes())
    except FileNotFoundError:  # no run there
        return
    except (ValueError, RecursionError) as error:
        why = f"{folder}/task.json is damaged ({error}); put it back, or remove it"
        raise RunFolderError(why) from error
    for key, digest in digests.items():
        was = before.get(key, digest) if isinstance(before, dict) else digest
        if was != digest:
            what, why = OF_FILES[key]
            raise RunFolderError(
                f"{folder} was made with {what} of digest {str(was)[:12]}, which now is "
                f"{digest[:12]}: {why} changed; put back what was there, or start another run with "
                f"--out"
            )


def _differences(was: Any, now: Any, at: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield (key, old, new) of every leaf that differs in two trees; None stands for no leaf."""
    if not (isinstance(was, dict) and isinstance(now, dict)):
        if was != now:
            yield at, was, now
        return
    for key in dict.fromkeys([*was, *now]):
        yield from _differences(was.get(key), now.get(key), f"{at}.{key}" if at else key)


def first_round(folder: Path, config: RunConfig, below: float = inf) -> int:
    """Count the rounds, ``below`` some, that every node which learns has a checkpoint of; 0: none.
    An author by itself goes on after the last round that it has a line of, and has kept."""
    if not config.learners:
        name, *_ = config.node
        kept = [int(each.stem) for each in (folder / name / "rounds").glob("[0-9]*.ptlk")]
        lines = [line.round for line in read_lines(folder / name / METRICS, RoundReport)]
        return min(max(kept, default=-1), *lines[-1:] or [-1]) + 1
    saved = [set(checkpoint.rounds_saved(folder / name)) for name in config.learners]
    return max((round for round in set.intersection(*saved) if round < below), default=0)


def whole_round(folder: Path, config: RunConfig) -> tuple[int, list[str]]:
    """Count the rounds of ``first_round`` by checkpoints that are what they were, and return what
    to say about newer ones. Raise RunFolderError if there are some, but all are damaged, or none
    is of all nodes: to begin anew would cost all rounds, which is for the user to say. Raise it
    too if the recipe has fewer rounds."""
    first, said = first_round(folder, config), list[str]()
    if first > config.end:
        why = f"{first} rounds, but the recipe ends after {config.end}; raise rounds or stop_when"
        raise RunFolderError(f"{folder} has {why}")
    saved = {name: checkpoint.rounds_saved(folder / name) for name in config.learners}
    begun = {name: max(its) for name, its in saved.items() if any(its)}
    # Killed before all nodes had their first one: its rounds are on disk, to be learned again.
    is_first = len(begun) < len(saved) and max(begun.values(), default=0) <= config.checkpoint_every
    if begun and not (is_first or first):
        has = ", ".join(f"{name} {round}" for name, round in begun.items())
        raise RunFolderError(
            f"{folder} has no checkpoint of the same round of every node (newest: {has}); go on "
            f"with `potluck run --resume`, without --one-process, where each node has its own "
            f"process, or start another run with --out"
        )
    while first:
        files = (checkpoint.damaged_file(folder / name, first) for name in config.learners)
        if not (file := next(filter(None, files), None)):
            break
        said.append(f"{printable(str(file))} is not what it was after {first} rounds")
        first = first_round(folder, config, below=first)
    if said and not first:
        raise RunFolderError(
            f"{said[0]}, and no earlier checkpoint is whole; put it back, or remove the {SUMS} of "
            f"the checkpoint to go on all the same, or all checkpoints to learn every round again"
        )
    return first, [f"{line}: an earlier checkpoint is taken" for line in said]
