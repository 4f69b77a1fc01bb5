"""Nodes with a fault in their process: killed at a place of the round, or wrong about the time.
``FAULT`` in the environment of ``Faulty`` says which, as JSON.

    {"kill": ["draw", "within", 3]}             in its third call: "before", "within" or "after"
    {"clock": [3600, -3600, 0], "every_s": 3}   time.time() is so far off, each for so long, in turn
"""

import functools
import importlib
import itertools
import json
import os
import random
import signal
import threading
import time

from forked import Forked

PHASES = {
    "look": "potluck.node.pace.free:Free.look",
    "draw": "potluck.node.pace.free:Free.draw",
    "generate": "potluck.node.loop:Node.write",
    "send": "potluck.exchange.zenoh.exchange:ZenohExchange.send",
    "receive": "potluck.exchange.zenoh.exchange:ZenohExchange.finish",
    "store": "potluck.node.storage.record:Record.keep_round",
    "select": "potluck.node.pace.free:Free.select",
    "grade": "potluck.node.loop:Node._grade",
    "remember": "potluck.node.pace.free:Free.remember",
    "learn": "potluck.node.learning.learner:Learner.learn",
    "report": "potluck.node.loop:Node.keep",
    "checkpoint": "potluck.node.storage.checkpoint:save",
}
"""Functions of a round at pace "free", in their order; the last one is not of each round."""
INSTANTS = ("before", "within", "after")


class Faulty(Forked):
    """A node that is forked, with the fault that its environment names."""

    @staticmethod
    def run(words, env, *rest):
        if fault := json.loads(env.get("FAULT", "{}")):
            if "kill" in fault:
                kill_at(*fault["kill"], random.Random(str(words)))
            if "clock" in fault:
                turn_clock(fault["clock"], fault["every_s"])
        Forked.run(words, env, *rest)


def replaced(place):
    """Return (owner, name, function) of a "module:Class.method" or "module:function"."""
    module, _, path = place.partition(":")
    owner = importlib.import_module(module)
    *outer, name = path.split(".")
    for each in outer:
        owner = getattr(owner, each)
    return owner, name, getattr(owner, name)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def kill_at(phase, instant, calls, dice):
    """Kill this process in call number ``calls`` of a phase; "within": after a random time."""
    owner, name, function = replaced(PHASES[phase])
    counted, longest_s = itertools.count(1), [0.002]

    @functools.wraps(function)
    def faulty(*given, **named):
        begun_s, is_last = time.monotonic(), next(counted) == calls
        if is_last and instant == "before":
            die()
        if is_last and instant == "within":
            threading.Timer(dice.random() * longest_s[0], die).start()
        result = function(*given, **named)
        if is_last and instant == "after":
            die()
        longest_s[0] = max(longest_s[0], time.monotonic() - begun_s)
        return result

    setattr(owner, name, faulty)


def turn_clock(offsets_s, every_s):
    """Put this process's clock off by one of the offsets after the other, again and again.
    ``time.monotonic`` goes on, as where somebody sets a machine's clock."""
    right, begun_s = time.time, time.monotonic()

    def wrong():
        turn = int((time.monotonic() - begun_s) / every_s)
        return right() + offsets_s[turn % len(offsets_s)]

    time.time = wrong
    time.time_ns = lambda: int(wrong() * 1e9)
