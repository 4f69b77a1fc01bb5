"""Completion of words in a shell: run folders and folders of nodes in them, names of nodes."""

from glob import escape, glob
from pathlib import Path

import typer

from potluck.config import ConfigError, read_tree


def run_folders(incomplete: str) -> list[str]:
    """List the run folders, and their nodes' with checkpoints, that begin so or are in ``runs``."""
    begun = [escape(incomplete), "runs/"]
    inside = ("recipe.json", "checkpoints", "*/checkpoints")
    found = {each for start in begun for its in inside for each in glob(f"{start}*/{its}")}
    return sorted({str(Path(each).parent) for each in found})


def names_of_nodes(context: typer.Context, incomplete: str) -> list[str]:
    """List the nodes of the recipe or run that stands before, as far as it can be read."""
    try:
        place = Path(context.args[0])  # an option without its value ends the parsing
        return list(read_tree(place / "recipe.json" if place.is_dir() else place)["node"])
    except (ConfigError, LookupError, TypeError):
        return []
