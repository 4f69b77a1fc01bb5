"""Which runs are offered a control."""

import json

import pytest

from potluck.reports.answers import told


@pytest.mark.parametrize("here, is_offered", [(("ada", "bob"), True), (("ada",), False)])
def test_a_control_is_offered_where_all_nodes_are_here(tmp_path, here, is_offered):
    nodes = {name: {"model": "builtin:digits-small"} for name in ("ada", "bob")}
    recipe = {"name": "r", "rounds": 1, "task": {"name": "digits"}, "node": nodes}
    (tmp_path / "recipe.json").write_text(json.dumps(recipe))
    for name in here:
        (tmp_path / name).mkdir()
    assert any("--control half" in line for line in told(tmp_path)) is is_offered
