"""Members that claim a round far ahead, in swarms of real nodes."""

import pytest

import tiny
from faults.hostile import HONEST, jumps, live, swarm_of
from forked import Forked

ROUNDS = 20


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """Return a function that runs honest nodes, half of the swarm, against a claim."""
    model = tiny.save(tmp_path_factory.mktemp("models") / "model")

    def run(each, claim):
        folder = tmp_path_factory.mktemp("run")
        short = (f"rounds={ROUNDS}", "deadline_s=3")
        swarm, members = swarm_of(folder, model, each, each, *short, popen=Forked)
        live(swarm, members, jumps(claim))
        rounds = {name: [m["round"] for m in swarm.metrics(name)] for name in HONEST[:each]}
        return rounds, {name: swarm.log(name) for name in rounds}

    return run


@pytest.mark.parametrize("each", [1, 2])
def test_a_majority_that_claims_a_round_that_cannot_be_is_told_of_and_ends_no_run(ended, each):
    rounds, logs = ended(each, 2_000_000_000)
    assert rounds == {name: list(range(ROUNDS)) for name in logs}
    for name, log in logs.items():
        assert f"{name}: the others claim round 2000000001; in the" in log
        assert "skipped" not in log


def test_rounds_that_are_skipped_are_told_when_they_are_and_at_the_end(ended):
    """The claim can be, after a while: others may be faster."""
    rounds, logs = ended(1, ROUNDS - 1)
    lived = rounds["east"]
    assert lived[-1] == ROUNDS - 1
    skipped = ROUNDS - len(lived)
    assert f"the others are at {ROUNDS}, so {skipped} rounds are skipped" in logs["east"]
    assert f"{len(lived)} rounds were done, {skipped} skipped" in logs["east"]
