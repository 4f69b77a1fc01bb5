"""A run's folder and a recipe: the folder is free, or what it holds is of the same run.

Nothing here loads torch, so a resume is refused before a process starts or a file is written.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from potluck.config import ConfigError, RunConfig, as_tree, load
from potluck.files import JOINED, unsealed
from potluck.node.storage.folder import is_taken, require_free, rounds_saved
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

    if resume:
        names = [name] if name else [*config.learners]
        saved = [set(rounds_saved(folder / each)) for each in names if each in config.learners]
        of_all = set.intersection(*saved) if saved else set()
        require_enough_rounds(folder, config, max(of_all, default=0))


def require_enough_rounds(folder: Path, config: RunConfig, done: int) -> None:
    """Raise RunFolderError if the recipe ends before the rounds that the run has ``done``."""
    if done > config.end:
        raise RunFolderError(
            f"{folder} has {done} rounds, but the recipe ends after {config.end}; raise rounds or "
            f"stop_when"
        )


def recorded_recipe(folder: Path) -> dict[str, Any]:
    """Read the recipe that the run in ``folder`` was made with; raise RunFolderError if it is
    damaged.

    Each node that has a process of its own wrote recipe.json, with what it knew of the others. What
    it knew of itself is in its own join.json, so that one is believed about the node.
    """
    tree = _read(folder / "recipe.json", folder)
    for name in tree["node"]:
        joined = folder / name / JOINED
        if joined.is_file():
            own = _read(joined, folder)["node"]
            tree["node"][name] = own.get(name, tree["node"][name])
    return tree


def _read(file: Path, folder: Path) -> dict[str, Any]:
    try:
        return as_tree(load(file))
    except ConfigError as error:
        raise RunFolderError(
            f"{folder} holds no {file.relative_to(folder)} of a run ({error}); put that file back, "
            f"as from `potluck run RECIPE --check --json`, or start another run with --out"
        ) from error


def _require_no_difference(folder: Path, config: RunConfig, *, resume: bool, name: str) -> None:
    """Raise RunFolderError if the run differs: in any node, or in ``name`` and what all share."""
    for key, old, new in _differences(recorded_recipe(folder), as_tree(config)):
        # Another node's keys are its own affair.
        is_of_another = name and key.startswith("node.") and key.split(".")[1] != name
        if is_of_another or _may_change(key, config) or _is_checkpoint_of(key, old, new):
            continue
        if name and key == f"node.{name}":
            why = f"is of a run whose recipe has no node {name!r}"
            raise RunFolderError(f"{folder} {why}; name a folder of its own with --out")
        raise RunFolderError(
            f"{folder} was made with {key} = {old}, but the recipe now has {key} = {new}; "
            f"{'resume' if resume else 'join'} with the old value, or start another run with --out"
        )


def _is_checkpoint_of(key: str, old: Any, new: Any) -> bool:
    """Tell whether ``new`` is a node of another run, of which this run was begun from a checkpoint:
    whether it is still the newest one, the node itself finds out (``builder.prepare.pinned``)."""
    is_model = key.startswith("node.") and key.endswith(".model")
    return is_model and bool(old and new) and Path(new) in Path(old).parents


def _may_change(key: str, config: RunConfig) -> bool:
    match key.split("."):
        case ["objective", "alignment_every"] | ["evaluation", "right"]:  # they only report
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
