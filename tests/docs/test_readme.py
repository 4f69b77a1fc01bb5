"""The README, typed into an empty folder: its recipe with fewer rounds, its commands as they are.

Its Python is run by .ci/run, with the wheel in an empty environment.
"""

import re
import tomllib

import pytest

from docs.test_pages import README, blocks
from docs.test_tutorial import environment_of, typed

pytestmark = pytest.mark.page


def test_its_recipe_and_its_commands_run(tmp_path):
    (recipe,) = blocks(README, "toml")
    fewer, count = re.subn(r"^rounds = \d+", "rounds = 2", recipe, flags=re.M)
    assert count == 1
    short = "evaluation = {problems = 20, out_of_distribution = 20}\n"
    name = tomllib.loads(recipe)["name"]
    (tmp_path / f"{name}.toml").write_text(short + fewer, encoding="utf-8")
    (commands,) = blocks(README, "sh")
    with environment_of(tmp_path) as environment:
        said = typed(commands, tmp_path, environment)
    assert "watch it: http://" in said
    assert "round 2/2" in said
    assert (tmp_path / "my-model" / "README.md").exists()
