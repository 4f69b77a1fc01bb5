"""What watching a swarm costs: its nodes, the network, and the observer.

    python benchmarks/watching.py [--nodes 16] [--seconds 20] [--flood 2000] [--mesh]

The nodes are real ones, without a model: an exchange and a session each, all in this process,
behind one relay, which is here too, or each connected to each (--mesh). Each sends an empty batch
and tells its status every five seconds. The observer is a process of its own with the feed of the
page. Measured are, one after another: nobody watches; the observer does; and while it does,
somebody puts --flood forged lines a second. Cores are processor time by the clock, all threads,
Zenoh's too; bytes are those of the loopback device: what else the machine sends there counts.
"""

import argparse
import hashlib
import multiprocessing
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from potluck.exchange import Agreement, Key, Limits, Membership, Provenance
from potluck.exchange.keys.keys import KnownKeys
from potluck.exchange.protocol.rules import InStep
from potluck.exchange.protocol.signed import encode_status
from potluck.exchange.zenoh.exchange import ZenohExchange
from potluck.exchange.zenoh.observer import observe
from potluck.exchange.zenoh.session import Endpoints, open_router, open_session
from potluck.reports.status import AuthorStatus, StatusLine
from potluck.show.web.swarm import swarm_feed
from potluck.types import Sampling

RUN, TELL_S = "watched", 5.0


def key_of(name):
    return Key(Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest()))


def address_of(at):
    return f"tcp/127.0.0.1:{17_400 + at}"


def node(stack, names, name, line, folder):
    provenance = Provenance(bytes(16), bytes(16), bytes(16), Sampling())
    own = Membership(
        agreement=Agreement(RUN, name, provenance, Limits(), lambda id: bytes(8)),
        key=key_of(name),
        known_keys=KnownKeys(
            {n: key_of(n).public for n in names}, names, False, folder / name / "pins.toml"
        ),
        folder=folder / name,
        members=names,
        partners=lambda round, live: live,
        codec="exact",
        rule=InStep(max_staleness=1, kept_rounds=4),
        kept_rounds=4,
        quarantine_s=60.0,
    )
    session = stack.enter_context(open_session(line, run=RUN))
    exchange = ZenohExchange(session, own)
    stack.callback(exchange.close)
    return exchange


def line_of(name, names, round):
    authors = {n: AuthorStatus(8, 1 / 3, 1.0, 0.0, 0.9, -1 / 7, None) for n in names[:16]}
    return StatusLine(
        node=name, run=RUN, time_s=time.time(), version="1.0", model="digits-large",
        parameters=10_000_000, round=round, rounds=1000, phase="write", done=3, total=12,
        tokens_per_s=1000.0, sent_bytes=100_000, received_bytes=500_000, reward=1 / 3, accuracy=0.5,
        authors=authors,
    )  # fmt: skip


def watch(connect, names, pipe):
    """The observer: says what it sees, and what it used, whenever asked."""
    roster = {name: key_of(name).public for name in names}
    with (
        observe(Endpoints(connect=connect), RUN, roster) as observer,
        swarm_feed(observer, RUN) as feed,
    ):
        for _ in iter(pipe.recv, None):
            feed.run("").look()
            view = feed.run("").view()
            states = [each.state for each in view.nodes or ()]
            told = sum(len(each.columns["round"]) > 0 for each in (view.curves or {}).values())
            size = len(msgspec.json.encode(view))
            refused = sum(sum(each.refused.values()) for each in observer.seen().values())
            pipe.send((states.count("training"), told, time.process_time(), size, refused))


def loopback_bytes():
    (line,) = [each for each in Path("/proc/net/dev").read_text().splitlines() if "lo:" in each]
    return int(line.partition(":")[2].split()[0])


def flood(connect, names, rate, over):
    """Put lines under all names, signed by a key that nobody has."""
    forged = [encode_status(line_of(n, names, 1), Key.new(), session=bytes(16)) for n in names]
    with open_session(Endpoints(connect=connect), run=RUN) as session:
        begun, count = time.monotonic(), 0
        while not over.wait(0.005):
            while count < (time.monotonic() - begun) * rate:
                at = count % len(names)
                session.put(f"{RUN}/status/{names[at]}", forged[at])
                count += 1


def main():
    ask = argparse.ArgumentParser()
    ask.add_argument("--nodes", type=int, default=16)
    ask.add_argument("--seconds", type=float, default=20)
    ask.add_argument("--flood", type=float, default=2000)
    ask.add_argument("--mesh", action="store_true")
    asked = ask.parse_args()
    names = [f"n{at:02d}" for at in range(asked.nodes)]
    context = multiprocessing.get_context("spawn")
    with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        if asked.mesh:
            every = [address_of(1 + at) for at in range(asked.nodes)]
            lines = [Endpoints((own,), tuple(every[:at])) for at, own in enumerate(every)]
            connect = tuple(every)
        else:
            stack.enter_context(open_router(Endpoints((address_of(0),))))
            lines, connect = [Endpoints(connect=(address_of(0),))] * asked.nodes, (address_of(0),)
        nodes = {
            name: node(stack, names, name, line, Path(folder))
            for name, line in zip(names, lines, strict=True)
        }
        for each in nodes.values():
            while each.gather(30.0):
                pass
        round = 0

        def live(seconds):
            """Go on for so long; return cores of the nodes, and kilobytes a second."""
            nonlocal round
            begun = time.monotonic(), time.process_time(), loopback_bytes()
            while (passed_s := time.monotonic() - begun[0]) < seconds:
                for name, each in nodes.items():
                    each.send(round, [])
                    each.tell(line_of(name, names, round + 1))
                round += 1
                time.sleep(min(TELL_S, seconds - passed_s))
            took_s = time.monotonic() - begun[0]
            used = time.process_time() - begun[1], loopback_bytes() - begun[2]
            return used[0] / took_s, used[1] / took_s / 1e3

        def row(what, cores, kilobytes, state=None, before=None):
            cells = [what, f"{cores:.3f}", f"{kilobytes:.1f}", *[""] * 5]
            if state:
                cells[3:] = f"{(state[2] - before[2]) / asked.seconds:.3f}", *state[:2], *state[3:]
            print("| " + " | ".join(map(str, cells)) + " |", flush=True)

        titles = (
            "",
            "cores of nodes",
            "kB/s",
            "cores of observer",
            "training",
            "told",
            "view, bytes",
        )
        print("| " + " | ".join((*titles, "refused")) + " |\n" + "|---" * 8 + "|")
        live(TELL_S)
        row("nobody watches", *live(asked.seconds))
        ours, theirs = context.Pipe()
        process = context.Process(target=watch, args=(connect, names, theirs))
        process.start()

        def state():
            ours.send(True)
            return ours.recv()

        begun = time.monotonic()
        while (now := state())[:2] != (asked.nodes, asked.nodes):
            live(0.5)
        print(f"all {asked.nodes} seen, each with its line, after {time.monotonic() - begun:.1f} s")
        row("observed", *live(asked.seconds), (last := state()), now)
        over = context.Event()
        rogue = context.Process(target=flood, args=(connect[:1], names, asked.flood, over))
        rogue.start()
        live(TELL_S)
        last = state()
        row(f"{asked.flood:g} forged a second", *live(asked.seconds), state(), last)
        over.set()
        rogue.join()
        ours.send(None)
        process.join()


if __name__ == "__main__":
    main()
