"""A run's recipe.json as the page shows it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from potluck.reports.runs import RecipeRead
from potluck.reports.tail import read_small
from potluck.show.terminal.show import title_of
from potluck.show.web.views import RecipeView
from potluck.types import NODE_NAME

RECIPE_BYTES = 1 << 20
MOST_SETTINGS = 1000
TEXT = 200
"""Longest value that is shown."""


@dataclass(frozen=True, slots=True)
class RunRecipe:
    """The parts of a recipe that states and headings depend on."""

    name: str
    rounds: int
    max_staleness: int
    models: Mapping[str, str]
    view: RecipeView


def read_recipe(folder: Path) -> RunRecipe | None:
    """Return the run's recipe; None if the folder has none, or it cannot be read."""
    data = read_small(folder / "recipe.json", RECIPE_BYTES)
    try:
        if data is None:
            return None
        read = msgspec.json.decode(data, type=RecipeRead)
        tree = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    settings = dict(islice(_dotted("", tree, 0), MOST_SETTINGS))
    staleness = settings.get("swarm.max_staleness", "1")
    if settings.get("pace") == "free":  # rounds are each node's own: nobody is behind
        staleness = str(read.rounds)
    return RunRecipe(
        name=read.name[:TEXT],
        rounds=read.rounds,
        max_staleness=int(staleness) if staleness.isdecimal() else 1,
        models={n: its.model[:TEXT] for n, its in read.node.items() if NODE_NAME.fullmatch(n)},
        view=RecipeView(
            task=read.task.name[:TEXT],
            plan=read.plan[:TEXT],
            method=title_of(read.objective)[:TEXT],
            group_size=read.group_size,
            problems_per_round=read.problems_per_round,
            seed=read.seed,
            settings=settings,
        ),
    )


def _dotted(key: str, tree: Any, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(tree, dict) and tree and depth < 8:
        for name, value in tree.items():
            yield from _dotted(f"{key}.{name}" if key else name, value, depth + 1)
    elif isinstance(tree, str):
        yield key[:TEXT], tree[:TEXT]
    else:
        yield key[:TEXT], msgspec.json.encode(tree).decode()[:TEXT]
