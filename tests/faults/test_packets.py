"""The switch below TCP and the bridge above Zenoh: they lose what they are told, and no more."""

import random
import socket
import threading
import time
from collections import Counter

import pytest
import zenoh

from faults.bridge import Bridge
from faults.exchanges import address, free_ports
from faults.packets import Losses, Switch
from faults.peer import Plan, open_session

ENOUGH_S = 120
MANY = 2000


@pytest.mark.parametrize("losses", [Losses(dropped=1.0), Losses(doubled=1.0), Losses(delayed=1.0)])
def test_a_fate_is_what_its_part_says(losses):
    dice, counts = random.Random(0), Counter()
    fates = [losses.fates(dice, counts) for _ in range(MANY)]
    assert counts["passed"] == MANY
    assert counts["dropped"] == MANY * losses.dropped
    assert counts["doubled"] == MANY * losses.doubled
    assert {len(fate) for fate in fates} == {0 if losses.dropped else 1 + int(losses.doubled)}
    assert any(fate != sorted(fate) or any(fate) for fate in fates) == bool(losses.delayed)


def test_tcp_between_two_machines_survives_what_the_switch_does_to_its_packets():
    try:
        switch = Switch("ab", Losses(dropped=0.02, doubled=0.05, delayed=0.2))
        switch.__enter__()
    except OSError as error:
        pytest.skip(f"no machines here: {error}")
    try:
        place = (switch.machines["b"].address, 7447)
        server = switch.machines["b"].call(socket.create_server, place)
        line = switch.machines["a"].call(socket.create_connection, place, ENOUGH_S)
        far, data, got = server.accept()[0], random.randbytes(1 << 19), b""
        with server, line, far:
            sending = threading.Thread(target=line.sendall, args=(data,))
            sending.start()
            while len(got) < len(data):
                got += far.recv(1 << 16)
            sending.join()
            assert got == data
            assert min(switch.counts[kind] for kind in ("dropped", "doubled", "delayed")) > 0
            switch.part("a", "b")
            line.sendall(b"during")
            far.settimeout(0.3)
            with pytest.raises(TimeoutError):
                far.recv(1)
            switch.heal()
            far.settimeout(ENOUGH_S)
            assert far.recv(6) == b"during"
    finally:
        switch.__exit__()


@pytest.mark.parametrize(
    "losses, times", [(Losses(), 1), (Losses(doubled=1.0), 2), (Losses(dropped=1.0), 0)]
)
def test_a_bridge_passes_an_answer_as_often_as_its_losses_say(tmp_path, losses, times):
    ports = dict(zip("ab", free_ports(2), strict=True))
    plans = {n: Plan(n, (), address(port), (), str(tmp_path)) for n, port in ports.items()}
    with open_session(plans["a"]) as a, open_session(plans["b"]) as b:
        b.declare_queryable("run/q/b/*", lambda query: query.reply(query.key_expr, b"batch"))
        with Bridge(ports, losses) as bridge:
            end_s = time.monotonic() + ENOUGH_S
            every = {"consolidation": zenoh.ConsolidationMode.NONE, "timeout": 5.0}
            answers = []
            while not bridge.counts["answers"]["passed"]:  # what it declares comes by and by
                assert time.monotonic() < end_s
                answers = [*a.get("run/q/b/3", **every)]
        assert len([one for one in answers if one.ok]) == times
