"""A node without a model: it takes part in every round with completions that anyone can make again.

    PYTHONPATH=src:tests python tests/faults/peer.py '[{"name": "a", ...}, ...]'

Runs each plan in a thread of its own and writes a line of JSON for each event. Ends at the end of
its standard input, or when all plans have done their rounds and that end has come. No torch.
"""

import hashlib
import json
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

OFFSET_S = float(sys.argv[2]) if __name__ == "__main__" and len(sys.argv) > 2 else 0.0
if OFFSET_S:
    # Before anything else can take a copy of it: this node's clock is wrong.
    right = time.time
    time.time = lambda: right() + OFFSET_S  # type: ignore[assignment]
    time.time_ns = lambda: int(time.time() * 1e9)  # type: ignore[assignment]

import numpy as np  # noqa: E402
import zenoh  # noqa: E402
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: E402

from nouns import terms  # noqa: E402
from potluck.exchange import Agreement, Key, Membership, Round  # noqa: E402
from potluck.exchange.keys.keys import KnownKeys  # noqa: E402
from potluck.exchange.protocol.rules import InStep  # noqa: E402
from potluck.exchange.zenoh import session as sessions  # noqa: E402
from potluck.exchange.zenoh.exchange import ZenohExchange  # noqa: E402
from potluck.reports.events import Told  # noqa: E402
from potluck.schedule import cohort  # noqa: E402
from potluck.types import Completion, PotluckError  # noqa: E402

VOCABULARY = 32_000
EVER = 1 << 30
Say = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What one node is to do."""

    name: str
    members: tuple[str, ...]
    listen: str
    connect: tuple[str, ...]
    folder: str
    rounds: int = EVER
    completions: int = 4
    tokens: int = 64
    """Of each completion."""
    pause_s: float = 0.0
    """Before each ``send``: the time in which a node with a model would write."""
    deadline_s: float = 60.0
    gather_s: float = 60.0
    max_staleness: int = 1
    kept_rounds: int = 32


def key_of(name: str) -> Key:
    """Everybody's, so that a test can speak under any name."""
    return Key(Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest()))


def batch_of(name: str, round: int, completions: int, tokens: int) -> list[Completion]:
    """What ``name`` writes in ``round``: the same wherever it is made."""
    seed = hashlib.sha256(f"{name}/{round}".encode()).digest()
    generator = np.random.default_rng(int.from_bytes(seed[:8], "little"))
    token_BT = generator.zipf(1.3, (completions, tokens)).clip(max=VOCABULARY - 1).astype(np.int32)
    logp_BT = -generator.exponential(0.7, (completions, tokens)).astype(np.float32)
    return [
        Completion(f"p{at}", name, at, token_BT[at], logp_BT[at], "stop")
        for at in range(completions)
    ]


def open_session(plan: Plan) -> zenoh.Session:
    """As ``potluck join`` does, but without gossip: it would lead around the relays of a test."""
    line = sessions.Endpoints((plan.listen,), plan.connect)
    config = sessions._config(line, "peer", "run")
    config.insert_json5("scouting/gossip/enabled", "false")
    return sessions._open(config, line, threading.Event())


def open_exchange(
    plan: Plan,
    session: zenoh.Session,
    own: Agreement | None = None,
    notify: Callable[[Told], None] = lambda told: None,
) -> ZenohExchange:
    own = own or terms(plan.name)
    members = frozenset(plan.members)
    roster = {name: key_of(name).public for name in members}
    folder = Path(plan.folder)
    folder.mkdir(parents=True, exist_ok=True)
    membership = Membership(
        agreement=own,
        key=key_of(plan.name),
        known_keys=KnownKeys(roster=roster, members=members, open=False, pins=folder / "pins.toml"),
        folder=folder,
        members=members,
        partners=lambda round, live: cohort(
            live, members=members, me=plan.name, run=own.run, round=round, size=32
        ),
        codec="exact",
        rule=InStep(plan.max_staleness, plan.kept_rounds),
        kept_rounds=plan.kept_rounds,
        quarantine_s=60.0,
        notify=notify,
    )
    return ZenohExchange(session, membership)


def live(plan: Plan, say: Say, stopping: Callable[[], bool]) -> None:
    """A node's life: round by round as ``Node`` has it, but that it believes others' rounds."""
    say = partial(say, plan.name)
    with open_session(plan) as session:
        exchange = open_exchange(plan, session, notify=lambda told: say("told", text=told.text))
        say("open")
        done = _done(plan)
        try:
            exchange.gather(plan.gather_s, lambda came, of: None)
            say("gathered", others=exchange.status().round)
            while done < plan.rounds and not stopping():
                others = exchange.status().round
                round = done if others - done <= plan.max_staleness else others
                step(plan, exchange, round, say)
                done = round + 1
                (Path(plan.folder) / "done").write_text(str(done))  # as a checkpoint does
            while not stopping():
                time.sleep(0.05)
        finally:
            exchange.close()
    say("closed")


def step(plan: Plan, exchange: ZenohExchange, round: int, say: Say) -> None:
    peers = exchange.status().peers
    sees = [name for name, peer in peers.items() if peer.live and peer.heard_s is not None]
    say("begin", round=round, sees=sees)
    time.sleep(plan.pause_s)
    start = time.monotonic()
    exchange.send(round, batch_of(plan.name, round, plan.completions, plan.tokens))
    say("sent", round=round, seconds=time.monotonic() - start)
    start = time.monotonic()
    arrived = exchange.finish(round, exchange.receive(round, wait_s=plan.deadline_s))
    say("round", round=round, seconds=time.monotonic() - start, **account(plan, round, arrived))


def account(plan: Plan, round: int, arrived: Round) -> dict[str, object]:
    """What came, by name and round, and what of it is not what was sent."""
    came = authors_of(arrived.completions)
    late = {then: authors_of(got) for then, got in arrived.late.items()}
    wrong = [
        f"{author} {then}"
        for then, batches in {**late, round: came}.items()
        for author, got in batches.items()
        if got != batch_of(author, then, len(got), len(got[0].token_T))
    ]
    return {
        "came": sorted(came),
        "late": {then: sorted(batches) for then, batches in late.items()},
        "wrong": wrong,
        "missing": arrived.missing,
        "refused": dict(arrived.traffic.refused),
        "quarantined": arrived.traffic.quarantined,
    }


def authors_of(completions: tuple[Completion, ...]) -> dict[str, list[Completion]]:
    by_author = defaultdict(list)
    for completion in completions:
        by_author[completion.author].append(completion)
    return dict(by_author)


def _done(plan: Plan) -> int:
    file = Path(plan.folder) / "done"
    return int(file.read_text()) if file.exists() else 0


def main() -> int:
    plans = [
        Plan(**{**one, "members": tuple(one["members"]), "connect": tuple(one["connect"])})
        for one in json.loads(sys.argv[1])
    ]
    lock, stopping = threading.Lock(), threading.Event()

    def say(name: str, event: str, **what: object) -> None:
        line = {"t": time.monotonic(), "name": name, "event": event, **what}
        with lock:
            print(json.dumps(line), flush=True)

    def run(plan: Plan) -> None:
        try:
            live(plan, say, stopping.is_set)
        except (PotluckError, OSError) as error:
            say(plan.name, "failed", why=f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=run, args=(plan,), daemon=True) for plan in plans]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    stopping.set()
    for thread in threads:
        thread.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
