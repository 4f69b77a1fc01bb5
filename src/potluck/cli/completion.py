"""Completion of words in a shell: run folders, folders of nodes, names of nodes."""

from glob import escape, glob
from pathlib import Path

import typer

from potluck.config import ConfigError, read_tree


def run_folders(incomplete: str) -> list[str]:
    """List the run folders that begin so; without a word, those in ``runs``, too."""
    return _folders("", "recipe.json", incomplete)


def node_folders(incomplete: str) -> list[str]:
    """List the folders RUN/NODE that have checkpoints and begin so."""
    return _folders("*/", "checkpoints", incomplete)


def _folders(level: str, inside: str, incomplete: str) -> list[str]:
    found = {*glob(f"{escape(incomplete)}*/{inside}"), *glob(f"runs/{level}*/{inside}")}
    if level:
        found |= {*glob(f"{escape(incomplete)}*/{level}{inside}")}
    places = (str(Path(each).parent) for each in found)
    return sorted(place for place in places if place.startswith(incomplete))


def names_of_nodes(context: typer.Context, incomplete: str) -> list[str]:
    """List the nodes of the recipe or run that stands before, as far as it can be read."""
    try:
        place = Path(context.args[0])  # an option without its value ends the parsing
        tree = read_tree(place / "recipe.json" if place.is_dir() else place)
        return [name for name in tree["node"] if name.startswith(incomplete)]
    except (ConfigError, LookupError, TypeError):
        return []
