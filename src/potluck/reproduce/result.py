"""What a finished cell leaves: ``experiments/cells/SCALE/NAME.json``, a few kilobytes.

It holds the curves and what they were made of: the recipe's digest, the code room by room,
the base models. A cell whose recipe is another one now was never run; one whose code has
changed since is *stale*: its numbers are shown, and marked.
"""

import hashlib
import platform
from collections.abc import Mapping
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
        ExperimentError: the file cannot be read.
    """
    path = result_file(folder, cell)
    try:
        found = msgspec.json.decode(path.read_bytes(), type=CellResult)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise ExperimentError(f"cannot read {path}: {error}; remove it to run it again") from None
    return found if found.recipe == cell.digest else None


def machine() -> str:
    return f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
