"""Stands in for ``potluck join``: trains nothing, but speaks as a node does.

``NODE_<name>`` in the environment names the function of this file that node <name> does. It is
started without site-packages, so that it is there in a moment.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

LONG_S = 300
"""Reached only where something is broken."""
name, folder, words = "", Path(), []
wishes = []
"""One for each Ctrl-C that came."""


def event(kind, /, **fields):
    print(json.dumps({"event": kind, **fields}), flush=True)


def say(text):
    event("message", text=text)


def complain(text):
    print(text, file=sys.stderr, flush=True)


def begin():
    recipe = (folder / "_swarm" / "recipe.json").read_bytes()
    (folder / "recipe.json").write_bytes(recipe)
    event("phase", node=name, phase="wait", done=0, total=1)


def wait_until(holds):
    end_s = time.monotonic() + LONG_S
    while not holds():
        assert time.monotonic() < end_s, f"{name} waited for nothing"
        time.sleep(0.01)


def wait_for_ctrl_c():
    wait_until(lambda: wishes)


def pids():
    recipe = json.loads((folder / "_swarm" / "recipe.json").read_text())
    return [folder / f"pid-{each}" for each in recipe["node"]]


# What a node may do.


def ends_at_once():
    pass


def begins():
    begin()


def leaves_a_folder():
    begin()
    (folder / name).mkdir()


def tells_everything():
    begin()
    print("a library greets the world")
    event("phase", node=name, phase="write", done=1, total=2)
    event("round_done", node=name, report={"round": 0})
    event("evaluated", node=name, report={"round": 0, "validation": 0.5})
    sys.stdout.write(json.dumps({"event": "message", "text": f"{name}: no newline"}))
    sys.stdout.flush()


def says_its_threads():
    begin()
    say(f"{name} {os.environ['OMP_NUM_THREADS']}")


def says_that_south_left():
    begin()
    event("peer", kind="left", peer="south")
    say(f"{name} begins without south")


def stops():
    begin()
    wait_for_ctrl_c()
    sys.exit(130)


def stops_slowly():
    begin()
    wait_for_ctrl_c()
    time.sleep(0.5)  # in which a second Ctrl-C would come, if there were one
    say(f"{name} wished {len(wishes)}x")
    sys.exit(130)


def is_deaf():
    begin()
    wait_for_ctrl_c()
    say(f"{name} will not")
    time.sleep(LONG_S)


def is_killed():
    begin()
    complain("torch says hello")
    os.kill(os.getpid(), signal.SIGKILL)


def goes_on():
    begin()
    wait_until((folder / "goes-on").exists)
    say(f"{name} goes on")


def fails():
    begin()
    complain("first")
    complain("potluck: the weights")
    sys.exit(1)


def has_a_mistake():
    complain("potluck: no such model")
    sys.exit(2)


def has_a_mistake_when_all_are_here():
    # A node that is asked to stop must have got so far as to hear it.
    wait_until(lambda: all(path.exists() for path in pids()))
    has_a_mistake()


def is_stopped_before_it_looked():
    wait_for_ctrl_c()
    time.sleep(0.3)  # as above
    complain(f"wished {len(wishes)}")
    for path in pids():
        path.unlink()
    sys.exit(130)


if __name__ == "__main__":
    words = sys.argv[3:]
    name = words[words.index("--as") + 1]
    folder = Path(words[words.index("--out") + 1])
    signal.signal(signal.SIGINT, lambda *_: wishes.append(1))
    (folder / f"pid-{name}").write_text(str(os.getpid()))
    say(f"{name} called with {words}")
    globals()[os.environ[f"NODE_{name}"]]()
