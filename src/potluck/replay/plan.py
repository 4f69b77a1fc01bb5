"""What is to be replayed: looked at before torch is loaded, which takes seconds."""

import difflib
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from potluck.config import METHODS, Method, RunConfig, load
from potluck.dashboard import Run, read_run
from potluck.types import PotluckError


class ReplayError(PotluckError):
    """A run that cannot be replayed, or not like this."""


@dataclass(frozen=True, slots=True)
class Plan:
    run: Path
    config: RunConfig
    """The run's own."""
    methods: tuple[Method, ...]
    rounds: Mapping[str, tuple[int, ...]]
    """Of each node to replay, those that it learned from, oldest first. A node that was away
    has left some out, and its replay leaves them out too."""
    out: Path


def make_plan(
    run: Path, *, methods: str, node: str = "", rounds: int | None = None, out: Path | None = None
) -> Plan:
    """Makes ``out``, so that a replay does not fail at its first line, after minutes.

    Args:
        methods: names, with commas between them.
        node: one of the run's; empty: every one that has done a round here.
        rounds: the first so many; None: all.
        out: the folder to write; None: ``run``/replay.

    Raises:
        RunReadError: ``run`` is no run.
        ReplayError: a method or a node that there is not, no rounds, a folder in the way or that
            cannot be written to.
    """
    chosen = _methods(methods)
    told = read_run(run)
    config = load(run / "recipe.json")
    if node and node not in config.node:
        raise ReplayError(f"--node is {node!r}, which {run} has not; {_hint(node, config.node)}")
    found = _rounds(told, node, rounds)
    if not found:
        who = f"the node {node!r} of {run}" if node else f"no node of {run}"
        raise ReplayError(
            f"{who} has {'no' if node else 'a'} round that could be replayed; it is in the node's "
            f"folder that its rounds are kept: name a run of this machine that has done one"
        )
    place = out or run / "replay"
    _make_folder(place)
    return Plan(run, config, chosen, found, place)


def _make_folder(place: Path) -> None:
    """Raises ReplayError unless the folder is empty by now, and can be written to."""
    try:
        if place.exists() and (not place.is_dir() or any(place.iterdir())):
            raise ReplayError(f"{place} exists; --out names another folder, or remove it")
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise ReplayError(
            f"cannot write to {place}: {error.strerror}; --out names another folder"
        ) from None


def _methods(text: str) -> tuple[Method, ...]:
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise ReplayError(f"--method is {text!r}; choose some of {','.join(METHODS)}")
    for name in names:
        if name not in METHODS:
            raise ReplayError(f"--method has {name!r}; {_hint(name, METHODS)}")
    return tuple(method for name in names for method in METHODS if method == name)


def _rounds(told: Run, node: str, most: int | None) -> dict[str, tuple[int, ...]]:
    """A round's line is written when it has been learned from; a crash may leave a file more."""
    return {
        each.name: tuple(line.round for line in each.rounds)[:most]
        for each in told.nodes
        if each.rounds and node in ("", each.name)
    }


def _hint(name: str, names: Collection[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {near[0]!r}?" if near else f"there is {', '.join(names)}"
