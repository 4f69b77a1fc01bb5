"""A node's own batches, as it sealed them: in memory to be served, on disk to outlive a crash.

A round's first batch stays. A node that was started again therefore says of a round what it
said before, to whoever asks.
"""

import os
from pathlib import Path

from potluck.exchange.announcement import Offer, offer_of
from potluck.exchange.base import WireError
from potluck.exchange.identity import Key, unseal
from potluck.exchange.wire import Limits, decode

BATCH = b"batch"


class Shelf:
    """The last ``kept_rounds`` rounds, in files such as 000012.ptlk."""

    def __init__(
        self, folder: Path, *, kept_rounds: int, run: str, node: str, key: Key, limits: Limits
    ) -> None:
        self._folder, self._kept_rounds = folder, kept_rounds
        # Replaced, never changed: other threads read them meanwhile.
        self._sealed: dict[int, bytes] = {}
        self._offers: dict[int, Offer] = {}
        self._too_old: tuple[int, bytes] | None = None
        for path in sorted(folder.glob("*.ptlk")) if folder.exists() else []:
            if path.stem.isdecimal() and _is_own(path, run, node, key, limits):
                self._take(int(path.stem), path.read_bytes())
        while len(self._sealed) > kept_rounds:
            self._drop(min(self._sealed))

    def get(self, round: int) -> bytes | None:
        too_old = self._too_old
        if too_old is not None and too_old[0] == round:
            return too_old[1]
        return self._sealed.get(round)

    def offers(self) -> list[Offer]:
        return list(self._offers.values())

    def put(self, round: int, sealed: bytes) -> None:
        """Keeps ``sealed``, unless there is a batch of the round.

        One that is older than all that are kept is not announced, and stays until the next such:
        this node still learns from it, and the first batch of no newer round has to go for it.

        Raises:
            OSError: it cannot be written; it is kept in memory all the same.
        """
        if self.get(round) is not None:
            return
        if len(self._sealed) >= self._kept_rounds and round < min(self._sealed):
            self._too_old = round, sealed
            return
        self._take(round, sealed)
        while len(self._sealed) > self._kept_rounds:
            self._drop(min(self._sealed))
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._path(round)
        unfinished = path.with_suffix(".tmp")
        try:
            unfinished.write_bytes(sealed)
            os.replace(unfinished, path)
        except OSError:
            unfinished.unlink(missing_ok=True)
            raise

    def _take(self, round: int, sealed: bytes) -> None:
        self._sealed = {**self._sealed, round: sealed}
        self._offers = {**self._offers, round: offer_of(round, sealed)}

    def _drop(self, round: int) -> None:
        self._sealed = {r: sealed for r, sealed in self._sealed.items() if r != round}
        self._offers = {r: offer for r, offer in self._offers.items() if r != round}
        self._path(round).unlink(missing_ok=True)

    def _path(self, round: int) -> Path:
        return self._folder / f"{round:06d}.ptlk"


def _is_own(path: Path, run: str, node: str, key: Key, limits: Limits) -> bool:
    """Whether others would take it: a damaged file, or one of an earlier key, is left alone."""
    try:
        message = decode(unseal(BATCH, path.read_bytes(), key.public), limits)
    except (OSError, WireError):
        return False
    return (message.run, message.round, message.sender) == (run, int(path.stem), node)
