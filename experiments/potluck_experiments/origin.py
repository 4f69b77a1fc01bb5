"""The origins of cells: base models, made by a script where they are missing, and code."""

import hashlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT
from typing import NamedTuple

import potluck
from potluck_experiments.cell_files import read_result
from potluck_experiments.cells import CellSpec, cells_of
from potluck_experiments.suite import ExperimentError, Suite

STEP = re.compile(r"step (\d+)/(\d*[1-9]\d*)")
UNKNOWN = "unknown"  # commit of code that is not in this repository: installed from elsewhere
PATHS = (
    *(f"src/potluck/{part}" for part in (
        "types.py", "fields.py", "config", "objective", "tasks", "model", "rollout", "schedule.py",
        "node", "builder", "launch", "exchange/memory.py", "exchange/transport.py", "exchange/wire",
    )),
    *("experiments/words/rewards.py", "experiments/real"),
)  # fmt: skip
"""Files that decide a cell's numbers beside its recipe. A cell runs in one process: no network."""


class Code(NamedTuple):
    """A commit, and the files of PATHS that differed from it."""

    commit: str
    uncommitted: tuple[str, ...] = ()


def missing_bases(suite: Suite, cells: Sequence[CellSpec]) -> list[str]:
    """Return the folders that the cells' nodes name and that do not exist, by name."""
    made = [cell for cell in cells if suite.scales[cell.scale].bases]
    models = {node.model for cell in made for node in cell.config.node.values()}
    root = suite.folder.resolve().parent
    return sorted(m for m in models if ":" not in m and not (root / m).is_dir())


def make_missing_bases(
    suite: Suite, cells: Sequence[CellSpec], *, jobs: int, say: Callable[[str], None]
) -> None:
    """Run the scale's script for each, ``jobs`` at a time. Ctrl-C reaches the scripts, too."""
    missing, script = missing_bases(suite, cells), suite.scales[cells[0].scale].bases
    if missing:
        say(f"making {len(missing)} base models, once: {', '.join(missing)}")
    with ThreadPoolExecutor(jobs) as pool:
        make = partial(_make, suite.folder.resolve().parent, script, say)
        for model in pool.map(make, missing):
            say(f"made {model}")


def _make(root: Path, script: str, say: Callable[[str], None], model: str) -> str:
    """Make one beside its place, so that a half of one is never taken for it; tell how far it is,
    which the script says in lines such as "step 70/700"."""
    place = root / model
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{place.name}.", dir=place.parent) as beside:
        script_run = subprocess.Popen(
            [sys.executable, script, beside, "--only", place.name], cwd=root,
            env={**os.environ, "OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "0"}, text=True,
            stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, errors="replace",
        )  # fmt: skip
        last = "it said nothing"
        with script_run:
            for line in filter(str.strip, script_run.stdout or ()):
                last = line.strip()
                if step := STEP.fullmatch(last):
                    say(f"{model}: {int(step[1]) / int(step[2]):.0%}")
        made = Path(beside) / place.name
        if script_run.returncode or not made.is_dir():
            raise ExperimentError(
                f"cannot make {model}: {script} ended with code {script_run.returncode}: {last}"
            )
        with suppress(OSError):  # another command was faster
            made.rename(place)
    return model


def require_same_bases(suite: Suite, cells: Sequence[CellSpec]) -> None:
    """Refuse to run cells beside finished ones that began from different models: a script makes
    others elsewhere, as sums of floats depend on the machine."""
    root, scale = suite.folder.resolve().parent, cells[0].scale
    named = {(c.family, name): n.model for c in cells for name, n in c.config.node.items()}
    digests = {model: base_digest(model, root) for model in set(named.values())}
    replaced = {cell.name for cell in cells}
    for cell in cells_of(suite, suite.experiments, scale, suite.scales[scale].seeds):
        result = None if cell.name in replaced else read_result(suite.folder, cell)
        for name, node in result.node.items() if result else ():
            model = named.get((cell.family, name))
            if model and node.base != digests[model]:
                raise ExperimentError(
                    f"{model} ({digests[model]}) is another model than the finished cell "
                    f"{cell.name} began from ({node.base}), so they cannot be compared; bring that "
                    f"one back, run every cell with this one (--all --again), or do so in a copy "
                    f"of {suite.folder} beside it, without its cells (--experiments)"
                )


def base_digest(model: str, root: Path = Path()) -> str:
    """Return 16 hex digits over the weights of a model's folder; any other name as it is."""
    weights, files = hashlib.sha256(), sorted((root / model).glob("*.safetensors"))
    for file in files:
        with file.open("rb") as stream:
            hashlib.file_digest(stream, lambda: weights)
    return weights.hexdigest()[:16] if files else model


def code_now(root: Path) -> Code:
    """Return the code that runs here."""
    head = _git(root, "rev-parse", "HEAD")
    is_here = Path(potluck.__file__).resolve().is_relative_to(root.resolve() / "src")
    if not head or not is_here:
        return Code(UNKNOWN)
    changed = _git(root, "diff", "--name-only", "HEAD", "--", *PATHS) or []
    new = _git(root, "ls-files", "--others", "--exclude-standard", "--", *PATHS) or []
    return Code(head[0], tuple(sorted({*changed, *new})))


def _git(root: Path, *words: str) -> list[str] | None:
    """Return the lines that git prints; None where it fails or is not installed."""
    try:
        command = ["git", "-C", str(root), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else [line for line in done.stdout.splitlines() if line]
