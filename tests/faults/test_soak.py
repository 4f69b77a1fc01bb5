"""The long ones: a partition that outlives the lease, and a swarm of 64 nodes.

POTLUCK_SOAK=1 python -m pytest tests/faults -s        (or: make soak)
"""

import os

import pytest

from faults.exchanges import all_closed, meshed
from faults.relay import Network
from faults.test_lines import partition

pytestmark = pytest.mark.skipif(not os.environ.get("POTLUCK_SOAK"), reason="takes minutes")

PROCESSES, ROUNDS = 8, 10
SETTLING_S = 300.0
CONFOUNDED = "came where that of", "does not answer that its announcements are of this run"
"""Refusals while dozens of nodes start at once: Zenoh confounds keys then, and delivers what one
node announced, or asks, under another one's name. Signatures tell, and nothing is lost."""


def test_both_sides_of_a_partition_of_half_a_minute_go_on_and_have_everything_when_it_heals(
    swarm, tmp_path
):
    """Longer than the lease: by then neither side waits for the other any more."""
    with Network() as network:
        partition(swarm, network, tmp_path, cut_s=30.0, pause_s=0.6, deadline_s=1.0)


@pytest.mark.parametrize("count, partners", [(64, 63), (70, 32)])
def test_many_nodes_complete_their_rounds(swarm, tmp_path, count, partners):
    names = tuple(f"n{at:02}" for at in range(count))
    plans = meshed(names, tmp_path, rounds=ROUNDS, deadline_s=SETTLING_S, gather_s=SETTLING_S)
    for at in range(PROCESSES):
        swarm.start(*list(plans.values())[at::PROCESSES])
    swarm.wait_for("all rounds", all_closed(swarm, names, ROUNDS - 1), within_s=ROUNDS * SETTLING_S)
    events = [event for name in names for event in swarm.rounds(name).values()]
    swarm.stop()
    told = {event["text"] for name in names for event in swarm.of(name, "told")}
    refusals = sorted(text for text in told if "refused" in text)
    strange = [text for text in refusals if not any(known in text for known in CONFOUNDED)]
    assert not any(event["wrong"] for event in events)
    assert not strange, strange[:5]
    for event in events:
        assert not event["missing"]
        # A cohort is drawn of who is there: at the start that changes while nodes come.
        assert len(event["came"]) > partners
