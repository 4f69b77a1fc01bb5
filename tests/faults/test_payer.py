"""An author that pays is killed at random instants: its books never hold less than was billed.

POTLUCK_SOAK=1 python -m pytest tests/faults/test_payer.py
"""

import itertools
import json
import os
import random
import re
import signal
import threading
import time
import urllib.request
from collections import Counter

import pytest

from faults import payer
from forked import fork_context
from potluck.rollout.texts.openai import TOKENS_AROUND
from stand_in_chat import StandInChat, stand_in_chat

KILLS = 200 if os.environ.get("POTLUCK_SOAK") else 3
LONGEST_PAUSE_S = 0.01


class Pause:
    """Stands for the event that answers wait for: a little while, each another one."""

    def wait(self):
        time.sleep(random.random() * LONGEST_PAUSE_S)

    def set(self):
        pass


class Billing(StandInChat):
    """Bills each request that reaches it, whether or not anybody hears the answer."""

    def __init__(self, plays):
        super().__init__()
        self.plays = plays
        self.models, self.stalls = [payer.NAME], Pause()
        self.bills, self.open, self.changed = [], 0, threading.Condition()

    def answer(self, path, body):
        if path == "/v1/chat/completions":
            asked = sum(len(message["content"]) for message in body["messages"])
            written = random.Random(body["seed"]).randint(1, payer.LONGEST)
            self.usage = {"prompt_tokens": asked, "completion_tokens": written}
            with self.changed:
                self.bills.append((body["seed"], (asked + written) * body.get("n", 1)))
                self.changed.notify_all()
        status, answer = super().answer(path, body)
        if self.plays and "choices" in answer:
            said = payer.turn_of(body["seed"], len(body["messages"]) // 2)
            answer["choices"][0]["message"]["content"] = said
        return status, answer

    def process_request(self, request, address):
        with self.changed:
            self.open += 1
        super().process_request(request, address)

    def process_request_thread(self, request, address):
        super().process_request_thread(request, address)
        with self.changed:
            self.open -= 1
            self.changed.notify_all()

    def wait_for_bills(self, count, process):
        """Wait until it has billed so much, or the author has ended by itself."""
        with self.changed:
            while len(self.bills) < count and process.exitcode is None:
                self.changed.wait(0.05)

    def wait_until_idle(self):
        """Wait until all that was sent by a dead process is read: it is billed, too."""
        with urllib.request.urlopen(f"{self.url}/models") as last_in_the_queue:
            last_in_the_queue.read()
        with self.changed:
            self.changed.wait_for(lambda: not self.open)


def tokens(cost):
    return cost.get("prompt_tokens", 0) + cost.get("completion_tokens", 0)


def booked(folder):
    """(tokens, requests without an answer, seeds of the texts) of an author's books."""
    file = folder / payer.NAME / "cost.log"
    whole = file.read_bytes().rpartition(b"\n")[0].splitlines() if file.exists() else []
    lines = [json.loads(line.partition(b" ")[2]) for line in whole]
    texts = [text for line in lines for text, end in line.get("choices", [])]
    costs = [line["cost"] for line in lines if "cost" in line]
    open = sum(cost.get("booked", 0) for cost in costs)
    return sum(map(tokens, costs)), open, {int(*re.findall(r"\d{3,}", text)) for text in texts}


@pytest.mark.parametrize("plays", [False, True], ids=["texts", "episodes"])
def test_books_of_a_killed_author_hold_what_was_billed_and_no_text_is_bought_twice(tmp_path, plays):
    random.seed(0)
    context = fork_context()
    runs, kills = itertools.count(), 0
    while kills < KILLS:
        with stand_in_chat(lambda: Billing(plays)) as server:
            run = Run(context, server, tmp_path / f"{next(runs)}")
            while kills < KILLS and run.lives_and_dies():
                kills += 1
            run.ends()


class Run:
    """One run of the author, from its first start to its end."""

    def __init__(self, context, server, folder):
        self.context, self.server, self.folder = context, server, folder
        self.kept, self.open = set(), 0

    def start(self):
        begun = self.context.Event()
        process = self.context.Process(
            target=payer.pay, args=(self.server.url, str(self.folder), begun, self.server.plays)
        )
        process.start()
        while process.exitcode is None and not begun.wait(1.0):
            pass
        return process

    def lives_and_dies(self):
        """Kill it once; return False if it came to its end before."""
        at = len(self.server.bills)
        process = self.start()
        self.server.wait_for_bills(at + random.randint(0, 8), process)
        time.sleep(random.random() * LONGEST_PAUSE_S)
        process.kill()
        process.join()
        self.server.wait_until_idle()
        if process.exitcode == 0:
            return False
        assert process.exitcode == -signal.SIGKILL
        self.check(at)
        return True

    def check(self, at):
        """Compare the books with the bills, of which number ``at`` is the first of this life."""
        spent, open, kept = booked(self.folder)
        billed = sum(tokens for _, tokens in self.server.bills)
        again = Counter(seed for seed, _ in self.server.bills[at:])
        assert set(again.values()) <= {1}
        assert not again.keys() & self.kept, "a text that was on disk is bought again"
        self.kept |= kept
        assert spent >= billed
        most = payer.COUNT * payer.LONGEST + len("What is 00?") + TOKENS_AROUND
        most += 500 * self.server.plays  # messages as JSON
        new, self.open = open - self.open, open
        assert spent - billed <= open * most, "more than those under way can cost"
        assert new <= payer.CONCURRENCY

    def ends(self):
        process = self.start()
        process.join()
        assert process.exitcode == 0
        for round in range(payer.ROUNDS):
            expected = [
                f"{id} {i} {payer.text_of(round, place, i, self.server.plays)}"
                for place, id in enumerate(payer.problems_of(round))
                for i in range(payer.COUNT)
            ]
            stored = self.folder / payer.NAME / f"round-{round}"
            assert stored.read_text().splitlines() == expected
