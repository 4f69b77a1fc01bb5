"""A node's own batches, as it sealed them: in memory to be served, on disk to outlive a crash."""

from pathlib import Path

from potluck.exchange.base import WireError
from potluck.exchange.keys.keys import BATCH, Key, verify
from potluck.exchange.protocol.signed import Offer, offer_of
from potluck.exchange.transport import Agreement
from potluck.exchange.wire.codec import decode
from potluck.files import write_atomically


class Outbox:
    """The last ``kept_rounds`` rounds, in files such as 000012.ptlk. A round's first batch stays: a
    node that was started again serves the same batch as before."""

    def __init__(self, folder: Path, agreement: Agreement, key: Key, *, kept_rounds: int) -> None:
        self._folder, self._kept_rounds = folder, kept_rounds
        # Replaced, never changed: other threads read them meanwhile.
        self._signed: dict[int, bytes] = {}
        self._too_old: tuple[int, bytes] = -1, b""
        for path in sorted(folder.glob("*.ptlk")):
            if path.stem.isdecimal() and _is_own(path, agreement, key):
                self._take(int(path.stem), path.read_bytes())

    def get(self, round: int) -> bytes | None:
        then, signed = self._too_old
        return signed if then == round else self._signed.get(round)

    def offers(self) -> list[Offer]:
        return [offer_of(round, signed) for round, signed in self._signed.items()]

    def put(self, round: int, signed: bytes) -> None:
        """Keep ``signed``, unless there is a batch of the round. Raise OSError if it cannot be
        written; it is kept in memory all the same. A batch older than all kept ones is not
        announced, and no newer one has to go for it; this node still learns from it."""
        if self.get(round) is not None:
            return
        if len(self._signed) >= self._kept_rounds and round < min(self._signed):
            self._too_old = round, signed
            return
        self._take(round, signed)
        self._folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self._folder / file_name(round), signed)

    def _take(self, round: int, signed: bytes) -> None:
        every = self._signed | {round: signed}
        old = sorted(every)[: -self._kept_rounds]
        # Before files are removed: a disk that refuses that is no reason to lose the batch.
        self._signed = {then: its for then, its in every.items() if then not in old}
        for oldest in old:
            (self._folder / file_name(oldest)).unlink(missing_ok=True)


def file_name(round: int) -> str:
    return f"{round:06d}.ptlk"


def _is_own(path: Path, agreement: Agreement, key: Key) -> bool:
    """Return whether others would take it: a damaged file, or one of an old key, is left alone."""
    try:
        message = decode(verify(BATCH, path.read_bytes(), key.public), agreement.limits)
    except (OSError, WireError):
        return False
    about = message.run, message.round, message.sender
    return about == (agreement.run, int(path.stem), agreement.node)
