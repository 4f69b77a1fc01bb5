"""Simulate a swarm at its own pace (``pace = "free"``): what its nodes learn from, and its cost.

    python benchmarks/pace_simulation.py [--nodes 2 8 64 250 1000] [--rounds 60] [--picture FILE]

There are no models and no network: time is a number, and an event follows the other. The mailbox,
the fetch queue, the state of the peers, the cohort, and all that draws problems and selects
completions are the real code. The seconds of a round are lognormal over the nodes (sigma 1, median
30), half of them for writing. A batch of 350 KB comes after 50 ms and as long as 10 MB/s take, one
after the other on the reader's line. All plan on 24 problems x 12 completions of GSM8K's size.
"""

import argparse
import heapq
import itertools
import json
import math
import random
import statistics
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import SimpleNamespace

from large_swarm import key_of

from potluck.builder.exchange import make_agenda, partners_of, rule_of
from potluck.config import from_tree
from potluck.exchange.base import Delivery, Received, Traffic, assemble_round
from potluck.exchange.protocol.fetch_queue import FetchQueue
from potluck.exchange.protocol.peers import Peers, announcement_pause_s
from potluck.exchange.protocol.rules import NewestMailbox
from potluck.exchange.protocol.signed import Announcement, Offer, encode_announcement
from potluck.node.pace.free import Free, WrittenProblems
from potluck.schedule import cohort
from potluck.types import Group, Problem, Row

RUN, PROBLEMS, MEDIAN_S, SIGMA = "pace", 7473, 30.0, 1.0
BATCH_BYTES, LATENCY_S, BYTES_PER_S = 350_000, 0.05, 10e6
OFFERED, KEPT = 4, 32
"""Rounds that are announced, as older ones are of no use here; and rounds that can be fetched."""
FIFTHS = 5


@dataclass(frozen=True, slots=True)
class Completed:
    """A completion without tokens."""

    problem_id: str
    author: str
    index: int


@cache
def problem(id):
    return Problem(id, "", "")


def read(completion):
    return Row(completion, None, None, "")


class NoRecord:
    """A node's folder that keeps nothing: nothing is resumed here."""

    def each(self, name):
        return []

    def add(self, name, lines):
        pass

    def add_taken(self):
        pass


def recipe(nodes):
    return from_tree(
        {
            "name": RUN,
            "pace": "free",
            "plan": "horizontal",
            "objective": {"method": "f-tis"},
            "problems_per_round": 24,
            "group_size": 12,
            "node": {f"n{at:04d}": {"model": "builtin:digits-small"} for at in range(nodes)},
        }
    )


@dataclass
class Node:
    name: str
    seconds: float
    """Length of its round."""
    mailbox: NewestMailbox
    pace: Free
    partners: object
    round: int = 0
    batches: dict = field(default_factory=dict)
    said: list = field(default_factory=list)
    """Its announcements, newest last: (time, announcement)."""
    line_free_s: float = 0.0
    most_held: int = 0
    count: Counter = field(default_factory=Counter)
    authors: set = field(default_factory=set)


class Swarm:
    """All nodes, and the events that are still to come."""

    def __init__(self, nodes, *, with_cohorts=True, seed=0):
        config, self.random = recipe(nodes), random.Random(seed)
        self.now_s, self.events, self.order = 0.0, [], itertools.count()
        names, task = list(config.node), SimpleNamespace(ids=lambda split: IDS)
        agenda, members = make_agenda(config, task), frozenset(config.node)
        self.pause_s, self.measured_from_s = announcement_pause_s(nodes - 1), 0.0
        self.nodes = {}
        for name in names:
            of_all = lambda round, live, me=name: cohort(  # noqa: E731
                live, members=members, me=me, run=RUN, round=round, size=1, all_up_to=nodes + 1
            )
            partners = partners_of(config, name) if with_cohorts else of_all
            peers = Peers(name, members, quarantine_s=config.swarm.quarantine_s)
            for other in peers:
                peers.get(other).live = True
            self.nodes[name] = Node(
                name,
                MEDIAN_S * math.exp(SIGMA * self.random.gauss(0, 1)),
                rule_of(config, taken={}).mailbox(
                    peers, FetchQueue(name, peers.has_priority), partners, 1 << 24
                ),
                Free(
                    agenda=agenda,
                    me=name,
                    max_staleness=config.swarm.max_staleness,
                    stranger_share=config.swarm.stranger_share,
                    strangers_share=config.swarm.strangers_share,
                    written=WrittenProblems(NoRecord()),
                    intake=config.taken,
                    meets=True,
                    trusts=lambda author: True,
                ),
                partners,
            )
        self.readers = {name: set() for name in names}
        self.read_by = {name: frozenset() for name in names}

    def run(self, until_s, *, measured_from_s):
        self.measured_from_s = measured_from_s
        for node in self.nodes.values():
            self.after(self.random.uniform(0, node.seconds), self.take, node)
        while self.events and self.events[0][0] < until_s:
            self.now_s, _, act, *about = heapq.heappop(self.events)
            act(*about)

    def after(self, seconds, act, *about):
        heapq.heappush(self.events, (self.now_s + seconds, next(self.order), act, *about))

    def note(self, node, **counts):
        if self.now_s >= self.measured_from_s:
            node.count.update(counts)

    def take(self, node):
        """Begin a round: as ``step`` does."""
        came = node.mailbox.receive(node.round, self.now_s, waited=False).batches
        taken = node.pace.choose(node.round, came)
        self.note(node, rounds=1, came=len(came))
        shares = node.pace.draw(node.round, Received(tuple(taken)))
        jitter = self.random.uniform(0.9, 1.1)
        self.after(node.seconds / 2 * jitter, self.send, node, taken, shares)

    def send(self, node, taken, shares):
        """End the writing, and learn."""
        own = tuple(
            Completed(share.problem_id, node.name, index)
            for share in shares
            for index in range(share.count)
        )
        node.batches[node.round] = own
        node.batches.pop(node.round - KEPT, None)
        self.announce(node)
        self.begin(node)
        self.hear(node, {each.author for each in taken})
        selected = self.select(node, own, taken)
        self.note_learned(node, own, selected)
        node.round += 1
        self.after(node.seconds / 2 * self.random.uniform(0.9, 1.1), self.take, node)

    def announce(self, node):
        packed = b"".join(
            r.to_bytes(4, "little") + BATCH_BYTES.to_bytes(4, "little") + r.to_bytes(16, "little")
            for r in range(max(0, node.round - OFFERED + 1), node.round + 1)
        )
        said = Announcement(2, RUN, node.name, b"k", b"s", b"t", self.now_s, packed)
        node.said = [*node.said[-3:], (self.now_s, said)]
        for reader in self.readers[node.name]:
            self.after(LATENCY_S, self.hear, self.nodes[reader], (node.name,))

    def begin(self, node):
        """Look for others' batches. Announcements outside its cohort change nothing that is looked
        at before they are in it, so they are heard only now."""
        partners = node.partners(node.round, node.mailbox.peers.live())
        self.hear(node, partners)
        node.mailbox.begin(node.round, self.now_s)
        for gone in self.read_by[node.name] - partners:
            self.readers[gone].discard(node.name)
        for new in partners - self.read_by[node.name]:
            self.readers[new].add(node.name)
        self.read_by[node.name] = partners
        self.fetch(node)

    def hear(self, node, authors):
        """Give a node the newest announcements of these authors that have come by now."""
        mailbox = node.mailbox
        for author in sorted(authors):
            said = [each for at, each in self.nodes[author].said if at + LATENCY_S <= self.now_s]
            before = mailbox.peers.get(author).announcement
            if said and before is None:
                mailbox.confirm(said[-1], self.now_s)
            elif said and said[-1] is not before:
                mailbox.on_announcement(said[-1], self.now_s)
        self.fetch(node)

    def fetch(self, node):
        while (job := node.mailbox.fetch_queue.take(self.now_s)) is not None:
            begun_s = max(self.now_s + LATENCY_S, node.line_free_s)
            node.line_free_s = begun_s + job.offer.size_bytes / BYTES_PER_S
            self.after(node.line_free_s - self.now_s, self.arrive, node, job)

    def arrive(self, node, job):
        completions = self.nodes[job.author].batches.get(job.offer.round)
        if completions is None:
            self.note(node, gone=1)
            node.mailbox.fetch_queue.again(job, self.now_s, jitter=self.random.random())
        else:
            delivery = Delivery(job.author, job.offer.round, b"", completions)
            node.mailbox.deliver(delivery, job.offer)
            self.note(node, fetched=1, fetched_completions=len(completions))
            self.note(self.nodes[job.author], served=1)
        node.most_held = max(node.most_held, node.mailbox.held)
        self.fetch(node)

    def select(self, node, own, taken):
        peers = node.mailbox.peers
        batches = [Delivery(node.name, node.round, b"", own), *taken]
        newest = {d.author: peers.newest_offer(d.author, d.round) for d in taken}
        arrived = assemble_round(node.round, batches, (), Traffic(), newest)
        selected = node.pace.select(node.round, arrived, read)
        groups = [
            Group(problem(rows[0].completion.problem_id), rows, (0.0,) * len(rows))
            for rows in selected.groups
        ]
        node.pace.remember(node.round, groups)
        return selected

    def note_learned(self, node, own, selected):
        used = Counter(row.completion.author for rows in selected.groups for row in rows)
        others = used.total() - used[node.name]
        self.note(
            node,
            learned=1,
            own=len(own),
            used=others,
            joint=(selected.joint_share or 0.0) * others,
            stale=(selected.staleness or 0.0) * others,
            authors=len(used.keys() - {node.name}),
        )
        if self.now_s >= self.measured_from_s:
            node.authors |= used.keys() - {node.name}
        for author in used.keys() - {node.name}:
            self.note(self.nodes[author], read=used[author])


IDS = tuple(f"gsm8k/train/{at}" for at in range(PROBLEMS))


def measure(nodes, rounds, *, with_cohorts=True):
    """Return the figures of each fifth of the nodes, the fastest first, then those of all. Of small
    swarms there are several, so that there are about 64 nodes."""
    begun, until_s = time.process_time(), rounds * MEDIAN_S
    swarms = [
        Swarm(nodes, with_cohorts=with_cohorts, seed=seed) for seed in range(max(1, 64 // nodes))
    ]
    for swarm in swarms:
        swarm.run(until_s, measured_from_s=until_s / 3)
    every = [node for swarm in swarms for node in swarm.nodes.values()]
    every.sort(key=lambda node: node.seconds)
    heard = (nodes - 1) * (1 / swarms[0].pause_s + statistics.mean(1 / n.seconds for n in every))
    parts = [(f"{q + 1}/{FIFTHS}", _fifth(every, q)) for q in range(FIFTHS)]
    rows = [
        {"nodes": nodes, "cohorts": with_cohorts, "fifth": which, **figures(part, heard, until_s)}
        for which, part in [*parts, ("all", every)]
    ]
    print(f"{nodes} nodes: {time.process_time() - begun:.0f} s", file=sys.stderr, flush=True)
    return rows


def _fifth(every, q):
    return every[len(every) * q // FIFTHS : len(every) * (q + 1) // FIFTHS]


def figures(part, heard, until_s):
    """Return what was counted of some nodes in the last two thirds of the time."""
    n = Counter()
    for node in part:
        n.update(node.count)
    per_s, own, used = 1 / (len(part) * until_s * 2 / 3), max(1, n["own"]), max(1, n["used"])
    return {
        "round s": statistics.median(node.seconds for node in part),
        "others' used per own": n["used"] / own,
        "own used by others, per own": n["read"] / own,
        "staleness": n["stale"] / used,
        "joint": n["joint"] / used,
        "authors a round": n["authors"] / max(1, n["learned"]),
        "authors in all": statistics.mean(len(node.authors) for node in part),
        "heard /s": heard,
        "fetches /s": n["fetched"] * per_s,
        "kB/s heard": heard * announcement_bytes() / 1e3,
        "kB/s fetched": n["fetched"] * BATCH_BYTES * per_s / 1e3,
        "kB/s served": n["served"] * BATCH_BYTES * per_s / 1e3,
        "of fetched used": n["used"] / max(1, n["fetched_completions"]),
        "of fetched taken": n["came"] / max(1, n["fetched"]),
        "most held": max(node.most_held for node in part),
        "rounds": n["rounds"],
    }


@cache
def announcement_bytes():
    """Return the length of an announcement of all batches that a node keeps."""
    offers = [Offer(round, BATCH_BYTES, bytes(16)) for round in range(KEPT)]
    about = {"session": bytes(16), "task": bytes(16), "clock_s": 1e9}
    return len(encode_announcement(RUN, "n0000", key_of("n"), offers, **about))


def draw(rows, path):
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 4, figsize=(14, 3.4), layout="constrained")
    learned, stale, shares, cost = axes
    ours = [row for row in rows if row["cohorts"]]
    counts = sorted({row["nodes"] for row in ours})
    of_all = [row for row in ours if row["fifth"] == "all"]
    largest = [row for row in ours if row["nodes"] == counts[-1] and row["fifth"] != "all"]
    fifths = [row["fifth"] for row in largest]
    for key, name in (
        ("others' used per own", "others' that it learns from"),
        ("own used by others, per own", "times that one of its own is used"),
    ):
        learned.plot(fifths, [row[key] for row in largest], "o-", label=name)
    learned.set(title=f"for each own completion, {counts[-1]:,} nodes", ylim=0)
    for count in counts:
        part = [row for row in ours if row["nodes"] == count and row["fifth"] != "all"]
        stale.plot(fifths, [row["staleness"] for row in part], "o-", label=f"{count:,} nodes")
    stale.set(title="staleness, rounds of the author", ylim=0)
    for key, name in (
        ("joint", "others' compared with own ones"),
        ("of fetched used", "fetched that is learned from"),
    ):
        shares.semilogx(counts, [row[key] for row in of_all], "o-", label=name)
    shares.set(title="shares, mean over nodes", ylim=(0, 1.05))
    for key, name in (("kB/s heard", "announcements"), ("kB/s fetched", "batches")):
        cost.semilogx(counts, [row[key] for row in of_all], "o-", label=name)
    cost.set(title="kB/s that come to a node", ylim=0)
    for ax in (learned, stale):
        ax.set(xlabel="fifth of the nodes, fastest first")
    for ax in (shares, cost):
        ax.set(xlabel="nodes", xticks=counts, xticklabels=counts)
        ax.minorticks_off()
    for ax in axes:
        ax.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def main():
    ask = argparse.ArgumentParser()
    ask.add_argument("--nodes", type=int, nargs="+", default=[2, 8, 64, 250, 1000])
    ask.add_argument("--without", type=int, nargs="*", default=[])
    ask.add_argument("--rounds", type=int, default=60)
    ask.add_argument("--picture", type=Path)
    ask.add_argument("--json", type=Path)
    asked = ask.parse_args()
    rows = [row for count in asked.nodes for row in measure(count, asked.rounds)]
    for count in asked.without:
        rows += measure(count, asked.rounds, with_cohorts=False)
    print("| " + " | ".join(rows[0]) + " |\n" + "|---" * len(rows[0]) + "|")
    for row in rows:
        cells = (f"{x:,.3g}" if isinstance(x, float) else str(x) for x in row.values())
        print("| " + " | ".join(cells) + " |")
    if asked.picture:
        draw(rows, asked.picture)
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
