"""The round after which a run goes on, and what is newer and therefore removed."""

from math import inf
from pathlib import Path

from potluck.config import RunConfig
from potluck.files import SUMS, printable
from potluck.node.storage import checkpoint
from potluck.node.storage.folder import rounds_saved
from potluck.node.storage.record import Record
from potluck.node.storage.same_run import require_enough_rounds
from potluck.reports import RoundReport
from potluck.reports.runs import METRICS, read_lines
from potluck.types import RunFolderError


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


def first_round(folder: Path, config: RunConfig, below: float = inf) -> int:
    """Count the rounds, ``below`` some, that every node which learns has a checkpoint of; 0: none.
    An author by itself goes on after the last round that it has a line of, and has kept."""
    if not config.learners:
        name, *_ = config.node
        kept = [int(each.stem) for each in (folder / name / "rounds").glob("[0-9]*.ptlk")]
        lines = [line.round for line in read_lines(folder / name / METRICS, RoundReport)]
        return min(max(kept, default=-1), *lines[-1:] or [-1]) + 1
    saved = [set(rounds_saved(folder / name)) for name in config.learners]
    return max((round for round in set.intersection(*saved) if round < below), default=0)


def whole_round(folder: Path, config: RunConfig) -> tuple[int, list[str]]:
    """Count the rounds of ``first_round`` by checkpoints that are what they were, and return what
    to say about newer ones. Raise RunFolderError if there are some, but all are damaged, or none
    is of all nodes: to begin anew would cost all rounds, which is for the user to say. Raise it
    too if the recipe has fewer rounds."""
    first, said = first_round(folder, config), list[str]()
    require_enough_rounds(folder, config, first)
    saved = {name: rounds_saved(folder / name) for name in config.learners}
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
