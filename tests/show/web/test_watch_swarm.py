"""``potluck watch --connect``: the page of a swarm, from its command to its data."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request

import pytest

from faults.exchanges import Swarm, meshed
from faults.peer import key_of
from potluck.exchange.keys.keys import roster_text

LONG_S = 60.0


@pytest.fixture
def swarm():
    with Swarm() as swarm:
        yield swarm


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--connect", "tcp/127.0.0.1:1"], "needs --run NAME"),
        (["--connect", "tcp/127.0.0.1:1", "--run", "a/*"], "'a/*' is no name of a run"),
        (["--connect", "nowhere", "--run", "x"], "expected tcp/HOST:PORT"),
        (["--connect", "tcp/127.0.0.1:1", "--run", "x", "runs"], "runs is a folder; give one"),
        (["--connect", "tcp/127.0.0.1:1", "--run", "x", "--as", "n"], "go together"),
        (["--connect", "tcp/127.0.0.1:1", "--run", "x", "--roster", "no.toml"], "no.toml cannot"),
        (["--run", "x"], "--run is of a swarm"),
    ],
)
def test_options_that_do_not_go_together_are_refused_in_one_line(potluck_says, options, complaint):
    code, _, said = potluck_says("watch", *options)
    assert (code, said.count("\n")) == (2, 1)
    assert complaint in said


def test_the_command_shows_the_nodes_of_a_swarm_that_it_has_no_part_in(swarm, tmp_path):
    plans = meshed("ab", tmp_path, pause_s=0.3)
    swarm.start_all(plans)
    roster = tmp_path / "roster.toml"
    roster.write_text(roster_text({"a": key_of("a").public}))
    connect = [word for plan in plans.values() for word in ("--connect", plan.listen)]
    command = ["watch", *connect, "--run", "run", "--roster", str(roster), "--web", "127.0.0.1:0"]
    watching = subprocess.Popen(
        [sys.executable, "-m", "potluck", *command],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip
    try:
        line = watching.stdout.readline()
        (address,) = re.findall(r"http://127\.0\.0\.1:\d+/", line)

        def got(what):
            with urllib.request.urlopen(f"{address}api/{what}", timeout=LONG_S) as answer:
                return json.load(answer)

        end_s, view = time.monotonic() + LONG_S, {}
        while len(view.get("matrix") or {}) < 2:
            assert time.monotonic() < end_s, view
            time.sleep(0.2)
            view = got("run?run=")
        nodes = {node["name"]: (node["known"], node["state"]) for node in view["nodes"]}
        assert nodes == {"a": ("signed", "training"), "b": ("unknown key", "training")}
        assert {*view["matrix"]["a"]} == {"a", "b"}
        assert got("pair?run=&learner=a&author=b")["columns"]["completions"][0] == 4
        assert got("start")["runs"][0]["name"] == "run"
        assert got("texts?run=&node=a")["texts"] == []
        watching.send_signal(signal.SIGINT)
        assert watching.wait(LONG_S) == 0
    finally:
        watching.kill()
        watching.communicate()
    swarm.stop()
