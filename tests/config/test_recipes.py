"""Every recipe that ships can be read, and names what there is."""

from pathlib import Path

import pytest

import potluck
from potluck.model.loading import locate

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.toml"))


def test_there_are_recipes():
    assert RECIPES


@pytest.mark.parametrize("path", [*RECIPES, potluck.STARTING_RECIPE], ids=lambda path: path.name)
def test_a_recipe_that_ships_is_read_and_its_built_in_models_are_there(path):
    config = potluck.load(path)
    for node in config.node.values():
        if node.model.startswith("builtin:"):
            assert (Path(locate(node.model)) / "model.safetensors").exists()
