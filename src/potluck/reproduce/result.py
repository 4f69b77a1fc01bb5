"""What a finished cell leaves: ``experiments/cells/SCALE/NAME.json``, a few kilobytes.

It holds the curves and what they were made of: the recipe's digest, the code room by room,
the base models. A cell whose recipe is another one now was never run; one whose code has
changed since is *stale*: its numbers are shown, and marked.
"""

import hashlib
import platform
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import msgspec
from msgspec import Struct

import potluck
from potluck.reproduce.cells import Cell
from potluck.reproduce.suite import ExperimentError, Scale

ROOMS = (
    "types.py", "config", "objective", "tasks", "rollout", "swarm", "node", "assemble", "launch",
    "exchange/memory.py", "exchange/wire.py", "exchange/planes.py",
)  # fmt: skip
"""The code that decides a cell's numbers. The network is not in it: cells run in one process."""

MOST_BYTES = 1_000_000
"""Of a result's file; of 1,000 rounds and four models it has 150,000."""
MOST = 1e12
"""Tokens or seconds: beyond what any run takes, so that sums of them stay finite."""


class NodeResult(Struct, frozen=True, kw_only=True):
    """One model's curves. Accuracies 0..1."""

    eval_rounds: tuple[int, ...]
    greedy: tuple[float, ...]
    """On the validation problems, at each of ``eval_rounds``."""
    out_of_distribution: float
    """Greedy, at the end."""
    sampled: tuple[float, ...]
    """Of each round, the mean reward of the completions that this model wrote."""
    tokens: tuple[int, ...]
    """Of each round, those that this model wrote."""
    seconds: tuple[float, ...]
    """Of each round: writing and learning, wall time."""
    filtered_share: tuple[float, ...]
    """Of each round's completions with an advantage, the share that the filter silenced."""
    base: str
    """Digest of the model's weights at the start; of one from the Hub its name."""


class CellResult(Struct, frozen=True, kw_only=True):
    """One finished cell."""

    scale: Scale
    family: str
    models: tuple[str, ...]
    setting: str
    seed: int
    recipe: str
    """Digest, see Cell."""
    code: Mapping[str, str]
    """Of each of ROOMS its digest."""
    machine: str
    torch: str
    cpu_s: float
    """Of the whole run, evaluations included: what one thread worked."""
    node: Mapping[str, NodeResult]

    def changed_since(self, code: Mapping[str, str]) -> list[str]:
        """Rooms whose code is another one now; empty: the cell is not stale."""
        return [room for room in code if self.code.get(room) != code[room]]


def code_digests() -> dict[str, str]:
    """Of each of ROOMS, 12 hex digits over its Python files and their names."""
    root, found = Path(potluck.__file__).parent, {}
    for room in ROOMS:
        place, whole = root / room, hashlib.sha256()
        for file in [place] if place.is_file() else sorted(place.rglob("*.py")):
            whole.update(file.relative_to(root).as_posix().encode() + b"\0")
            whole.update(file.read_bytes() + b"\0")
        found[room] = whole.hexdigest()[:12]
    return found


def result_file(folder: Path, cell: Cell) -> Path:
    """Where a cell's result is, below ``experiments/``."""
    return folder / "cells" / cell.scale / f"{cell.name}.json"


def read_result(folder: Path, cell: Cell) -> CellResult | None:
    """The cell's result; None if it was not run, or its recipe was another one then.

    Raises:
        ExperimentError: the file cannot be read, or holds what no run of the cell leaves.
    """
    path = result_file(folder, cell)
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise ValueError(f"it is larger than {MOST_BYTES:,} bytes")
        found = msgspec.json.decode(data, type=CellResult)
    except FileNotFoundError:
        return None
    # MsgspecError is a ValueError; RecursionError: brackets, thousands deep.
    except (OSError, ValueError, RecursionError) as error:
        raise ExperimentError(f"cannot read {path}: {error}; remove it to run it again") from None
    if found.recipe != cell.digest:
        return None
    if wrong := _what_is_wrong(found, cell):
        raise ExperimentError(f"cannot use {path}: {wrong}; remove it to run it again")
    return found


def _what_is_wrong(found: CellResult, cell: Cell) -> str:
    """Why this cannot be the cell's result; "" if it can.

    Whoever sends in cells may have made them by hand, and every page reads all of them.
    """
    for name in ("scale", "family", "models", "setting", "seed"):
        told, own = getattr(found, name), getattr(cell, name)
        if told != own:
            return f"{name} is {told!r:.80}, expected {own!r}"
    if set(found.node) != set(cell.models):
        return f"its nodes are {sorted(found.node)!r:.80}, expected {sorted(cell.models)}"
    if not 0 <= found.cpu_s <= MOST:
        return f"cpu_s is {found.cpu_s}, expected 0 to {MOST:g}"
    wrong = (_wrong_in(model, found.node[model], cell.config.rounds) for model in cell.models)
    return next(filter(None, wrong), "")


def _wrong_in(model: str, node: NodeResult, rounds: int) -> str:
    for name in ("sampled", "tokens", "seconds", "filtered_share"):
        if len(getattr(node, name)) != rounds:
            return f"{model}: {name} has {len(getattr(node, name))} rounds, expected {rounds}"
    at = node.eval_rounds
    if len(at) != len(node.greedy):
        return f"{model}: greedy has {len(node.greedy)} values at {len(at)} eval_rounds"
    rising = all(one < next for one, next in pairwise(at))
    if not (at and at[0] >= 0 and rising and at[-1] == rounds):
        return (
            f"{model}: eval_rounds is {list(at)!r:.80}, expected to rise from 0 or more to {rounds}"
        )
    shares = {
        "greedy": node.greedy,
        "out_of_distribution": (node.out_of_distribution,),
        "sampled": node.sampled,
        "filtered_share": node.filtered_share,
    }
    amounts = {"tokens": node.tokens, "seconds": node.seconds}
    for series, most in ((shares, 1), (amounts, MOST)):
        for name, values in series.items():
            for value in values:
                if not 0 <= value <= most:  # nor NaN
                    return f"{model}: {name} has {value!r:.80}, expected 0 to {most:g}"
    return ""


def machine() -> str:
    return f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
