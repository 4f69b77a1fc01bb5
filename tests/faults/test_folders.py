"""A disk damages a run's folder: what goes on is the run without the damage, or a line tells."""

import os

import pytest

import tiny
from faults.folders import FAULTS, LOOKED_AT, NODES, Crashed, bad, flips, resume, told

SOAK = os.environ.get("POTLUCK_SOAK")
PACES = {"step": (), "free": ("pace=free", "plan=horizontal")}


@pytest.fixture(scope="module", params=PACES if SOAK else ["step"])
def crashed(request, tmp_path_factory):
    place = tmp_path_factory.mktemp(request.param)
    models = {name: tiny.save(place / name, seed) for seed, name in enumerate(NODES)}
    return Crashed.make(models, place, *PACES[request.param])


@pytest.mark.skipif(not SOAK, reason="a byte anywhere: looked for by make soak")
def test_a_flipped_byte_of_any_file_changes_nothing_or_is_told(crashed, tmp_path):
    outcomes = flips(crashed, tmp_path / "run", seed=2, count=100)
    print(f"\n{told(outcomes)}")
    assert not bad(outcomes)
    shown = [each for each in outcomes if each.file.endswith(LOOKED_AT)]
    assert [each for each in shown if each.kind != "equal"] == []


def test_each_fault_changes_nothing_or_is_told(crashed, tmp_path):
    outcomes = {name: resume(crashed, tmp_path / "run", make) for name, make in FAULTS.items()}
    print(f"\n{told(outcomes.values())}")
    assert not bad(outcomes.values())
    for name in ("recipe, a digit", "task.json torn"):
        assert outcomes[name].kind == "told"
    for name in ("weights, 2,000 mantissas", "moments, 2,000 mantissas", "round flipped"):
        ended = outcomes[name]
        assert ended.kind == "equal"
        assert any(ended.file in line for line in ended.lines)
