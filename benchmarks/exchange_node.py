"""One node of ``exchange.py``, in a process of its own and without torch.

    python benchmarks/exchange_node.py '{"name": "n0", "members": [...], "listen": ..., ...}'

Does what each line of its standard input says, and answers with a line when it has done it.
"""

import hashlib
import json
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import zenoh
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from potluck.exchange import (
    Agreement,
    Key,
    Limits,
    Membership,
    Message,
    Provenance,
    decode,
    encode,
    process,
)
from potluck.exchange.keys.keys import KnownKeys
from potluck.exchange.protocol.rules import InStep
from potluck.exchange.wire.byte_planes import Codec
from potluck.exchange.zenoh import exchange as ours
from potluck.exchange.zenoh.session import Endpoints, open_session
from potluck.types import Completion, Sampling

RUN = "bench"
SIZE_BYTES = 350_000
"""Of a batch as it is sent."""
COMPLETIONS, VOCABULARY = 64, 151_936
SERVERS = 4
"""Threads that answer, of the bare side; the exchange has its own."""
LONG_S = 60.0


def key_of(name: str) -> Key:
    return Key(Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest()))


def terms_of(name: str) -> Agreement:
    origin = Provenance(bytes(16), bytes(16), bytes(16), Sampling())
    limits, digests = Limits(vocabulary=VOCABULARY), [lambda problem: bytes(8)] * 2
    return Agreement(RUN, name, origin, limits, *digests)


def batch_of(name: str) -> tuple[Completion, ...]:
    """Zipf ids and log-probabilities of which most are near 0, about ``SIZE_BYTES`` when sealed."""
    tokens = 1000
    for _ in range(3):
        batch = _draw(name, tokens)
        size = len(encode(terms_of(name).message(0, batch)))
        tokens = round(tokens * SIZE_BYTES / size)
    return batch


def _draw(name: str, tokens: int) -> tuple[Completion, ...]:
    seed = hashlib.sha256(name.encode()).digest()
    generator = np.random.default_rng(int.from_bytes(seed[:8], "little"))
    shape = COMPLETIONS, tokens
    token_BT = (generator.zipf(1.2, shape) % VOCABULARY).astype(np.int32)
    logp_BT = -(generator.exponential(1.0, shape).astype(np.float32) ** 3)
    return tuple(
        Completion(f"p{at // 8}", name, at, token_BT[at], logp_BT[at], "length")
        for at in range(COMPLETIONS)
    )


class Bare:
    """The bytes alone: a queryable that serves them, and a ``get`` to each other node."""

    def __init__(self, session: zenoh.Session, name: str, others: list[str], data: bytes) -> None:
        self._session, self._others, self._data = session, others, data
        self._asked = session.declare_queryable(f"bare/{name}", zenoh.handlers.FifoChannel(256))
        for _ in range(SERVERS):
            threading.Thread(target=self._serve, daemon=True).start()

    def gather(self) -> dict[str, float]:
        """All at once."""
        replies = [self._session.get(f"bare/{other}", timeout=LONG_S) for other in self._others]
        return {"bytes": sum(self._first(reply) for reply in replies)}

    def _first(self, replies: object) -> int:
        for reply in replies:
            return len(reply.ok.payload.to_bytes())
        raise SystemExit("a bare get had no answer")

    def _serve(self) -> None:
        with suppress(zenoh.ZError):  # the session was closed
            while True:
                with self._asked.recv() as query:
                    query.reply(query.key_expr, self._data)


class Ours:
    """A round of the exchange: ``send``, then ``receive`` until everybody's batch is here."""

    def __init__(self, exchange: ours.ZenohExchange, batch: tuple[Completion, ...]) -> None:
        self._exchange, self._batch, self._round = exchange, batch, 0

    def gather(self) -> dict[str, float]:
        self._round += 1
        start = time.monotonic()
        self._exchange.send(self._round, self._batch)
        sent = time.monotonic()
        received = self._exchange.receive(self._round, wait_s=LONG_S)
        arrived = self._exchange.finish(self._round, received)
        if arrived.missing:
            raise SystemExit(f"{arrived.missing} did not come; {arrived.traffic}")
        return {"send_s": sent - start, "bytes": arrived.traffic.received_bytes}


class Unread:
    """While it is entered, the exchange neither compresses nor unpacks nor validates.

    ``encode`` gives bytes that say who and which round, and are as long as ever; ``decode`` the
    batch that their author has. What is left is announced, hashed, signed, fetched and verified.
    """

    MARK = b"unread"

    def __init__(self, members: list[str], size_bytes: int) -> None:
        self._batches = {name: batch_of(name) for name in members}
        self._filler = np.random.default_rng(0).bytes(size_bytes)
        self._active = False
        process.encode, process.decode = self._encode, self._decode

    def __enter__(self) -> None:
        self._active = True

    def __exit__(self, *_: object) -> None:
        self._active = False

    def _encode(self, message: Message, *, codec: Codec) -> bytes:
        if not self._active:
            return encode(message, codec=codec)
        return self.MARK + f"{message.sender:>32}{message.round:>10}".encode() + self._filler

    def _decode(self, data: bytes, limits: Limits) -> Message:
        # By what came: another node may have begun this turn before this one.
        if not data.startswith(self.MARK):
            return decode(data, limits)
        said = data[len(self.MARK) :]
        sender, round = said[:32].decode().strip(), int(said[32:42])
        return Message(RUN, round, sender, terms_of(sender).provenance, {}, self._batches[sender])


def main() -> int:
    plan = json.loads(sys.argv[1])
    name, members, folder = plan["name"], plan["members"], Path(plan["folder"])
    own, batch = terms_of(name), batch_of(name)
    data = key_of(name).sign(b"batch", encode(own.message(0, batch)))
    with open_session(Endpoints((plan["listen"],), tuple(plan["connect"])), run=RUN) as session:
        bare = Bare(session, name, [other for other in members if other != name], data)
        roster = {other: key_of(other).public for other in members}
        membership = Membership(
            agreement=own,
            key=key_of(name),
            known_keys=KnownKeys(
                roster=roster, members=members, open=False, pins=folder / "pins.toml"
            ),
            folder=folder,
            members=members,
            partners=lambda round, live: live,
            codec="exact",
            rule=InStep(max_staleness=1, kept_rounds=4),
            kept_rounds=4,
            quarantine_s=60.0,
        )
        exchange = ours.ZenohExchange(session, membership)
        exchange.gather(LONG_S)
        rounds = Ours(exchange, batch)
        unread = Unread(members, len(data))
        tell({"size_bytes": len(data)})
        for line in sys.stdin:
            start = time.monotonic()
            if line.strip() == "bare":
                told = bare.gather()
            elif line.strip() == "ours":
                told = rounds.gather()
            else:
                with unread:
                    told = rounds.gather()
            tell({"start_s": start, "end_s": time.monotonic(), **told})
        exchange.close()
    return 0


def tell(what: dict[str, float]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    sys.exit(main())
