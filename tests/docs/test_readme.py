"""The README's recipe, with fewer rounds, and its commands; .ci/run runs its Python."""

import tomllib

import pytest

from docs.test_pages import README, blocks
from docs.test_tutorial import environment_of, typed, with_rounds

pytestmark = pytest.mark.page


def test_the_recipe_and_the_commands_of_the_readme_run(tmp_path):
    (recipe,) = blocks(README, "toml")
    short = "problems_per_round = 4\ngroup_size = 4\n"
    short += "evaluation = {problems = 5, out_of_distribution = 5}\n"
    name = tomllib.loads(recipe)["name"]
    (tmp_path / f"{name}.toml").write_text(short + with_rounds(recipe, 1), encoding="utf-8")
    (commands,) = blocks(README, "sh")
    with environment_of(tmp_path) as environment:
        said = typed(commands, tmp_path, environment)
    assert "watch it: http://" in said
    assert "round 1/1" in said
    assert (tmp_path / "my-model" / "README.md").exists()
