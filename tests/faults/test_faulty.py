"""Processes with a fault in them: what is to break them does, and where it should."""

import signal

import pytest

from faults.faulty import PHASES, Faulty, replaced
from faults.peer import batch_of, key_of
from faults.swarm import Swarm
from faults.whole import recipe, require_all_whole, require_written_once
from nouns import terms
from potluck.exchange import encode


def test_a_node_dies_in_the_round_that_it_is_told_and_goes_on_with_all_of_it(tmp_path):
    config = recipe(tmp_path / "models", 6, "free", names=("east",))
    with Swarm(config, tmp_path / "run", popen=Faulty) as swarm:
        swarm.start(fault={"kill": ["send", "after", 3]})
        assert swarm.wait() == {"east": -signal.SIGKILL}
        assert swarm.round("east") == 1
        swarm.start("east", resume=True)
        assert swarm.wait() == {"east": 0}
        require_all_whole(swarm, 6, "free")
        (swarm.folder / "east" / "rounds" / "000003.ptlk").unlink()
        with pytest.raises(AssertionError):
            require_all_whole(swarm, 6, "free")


def test_one_batch_of_two_rounds_is_found():
    def sealed(written, round):
        batch = tuple(batch_of("a", written, 2, 8))
        return key_of("a").sign(b"batch", encode(terms("a").message(round, batch)))

    require_written_once({("a", round): sealed(round, round) for round in range(3)})
    with pytest.raises(AssertionError):
        require_written_once({("a", round): sealed(0, round) for round in range(3)})


@pytest.mark.parametrize("phase", PHASES)
def test_each_phase_is_a_function_that_is_there(phase):
    owner, name, function = replaced(PHASES[phase])
    assert callable(function)
    assert getattr(owner, name) is function
