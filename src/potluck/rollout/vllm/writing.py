"""Requests that a server works on in the background, asked anew where it was started anew."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import Empty, Queue
from threading import Thread

import numpy as np
from torch import Tensor

from potluck.rollout.base import TICK_S, Progress
from potluck.rollout.vllm.client import FIRST_PAUSE_S, Address, Client, Disconnected
from potluck.rollout.vllm.response import ServerRequest
from potluck.rollout.vllm.weights import WeightSync, as_it_was
from potluck.types import Completion


class ServerWriting:
    """Completions of a list of requests, all of the weights in one folder.

    A thread sends the weights and the requests. Once a connection breaks, the requests that were
    not yet begun or broke are asked anew, after the weights were sent anew: a server that was
    started anew would write with the weights of its start. One whose connection held was answered
    by the process that had the weights.
    """

    def __init__(
        self,
        requests: Sequence[ServerRequest],
        address: Address,
        weight_sync: WeightSync,
        place: Path,
        concurrency: int,
        *,
        read: Callable[[bytes, ServerRequest, Client], list[Completion]],
        check: Callable[[np.ndarray, Sequence[Completion]], np.ndarray],
        kept: Mapping[str, Tensor],
    ) -> None:
        """Begin. ``kept`` are the weights of ``place`` if the network's change until ``collect``,
        else empty."""
        self._requests, self._client, self._weight_sync = requests, Client(address), weight_sync
        self._place, self._concurrency, self._kept = place, concurrency, kept
        self._read, self._check = read, check
        self._arrived: Queue[tuple[int, list[Completion], bool] | BaseException | None] = Queue()
        self._thread = Thread(target=self._run, name="vllm-writing", daemon=True)
        weight_sync.writing = self._thread
        self._thread.start()

    def collect(self, progress: Progress) -> list[Completion]:
        """Wait for all completions; return them in the order of the requests, then by index.

        Check the first and the last request's, and those of each that was asked twice. Raise
        RolloutError if the server does not write, or not with the weights it was to.
        """
        answers: list[list[Completion]] = [[] for _ in self._requests]
        total, done = sum(each.count for each in self._requests), 0
        unchecked, gaps, last = list[int](), list[np.ndarray](), len(answers) - 1
        try:
            while True:
                progress(done, total)
                try:
                    arrived = self._arrived.get(timeout=TICK_S)
                except Empty:
                    continue
                if isinstance(arrived, BaseException):
                    raise arrived
                if arrived:
                    place, answers[place], again = arrived
                    done += len(answers[place])
                    unchecked += [place] * (again or place in (0, last))
                if not arrived or not self._kept:  # a wrong server is to stop at once
                    with as_it_was(self._weight_sync.policy.network, self._kept):
                        prompts = [self._requests[at].prompt_P for at in unchecked]
                        written = [answers[at] for at in unchecked]
                        gaps += map(self._check, prompts, written)
                    unchecked = []
                if not arrived:
                    break
        finally:
            self.abandon()
        self._weight_sync.apart = float(np.concatenate(gaps).mean())
        return [completion for answer in answers for completion in answer]

    def abandon(self) -> None:
        self._client.close()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._write()
            self._weight_sync.sleep(self._client)
            self._arrived.put(None)
        except BaseException as error:  # told where it is collected
            self._arrived.put(error)

    def _write(self) -> None:
        waiting, client, again = dict(enumerate(self._requests)), self._client, False
        begun_s, pause_s = time.monotonic(), FIRST_PAUSE_S
        while True:
            breaks, before = client.breaks, len(waiting)
            self._weight_sync.push(client, self._place)
            broken = self._ask_all(waiting, breaks, again)
            if not waiting:
                return
            assert broken
            self._weight_sync.forget()
            again = True
            if len(waiting) < before:
                begun_s, pause_s = time.monotonic(), FIRST_PAUSE_S
            if time.monotonic() + pause_s - begun_s > client.address.timeout_s:
                raise broken
            pause_s = client.pause(pause_s)

    def _ask_all(
        self, waiting: dict[int, ServerRequest], breaks: int, again: bool
    ) -> Disconnected | None:
        """Take what is answered before a connection breaks out of ``waiting``; return the break."""
        broken = None
        pool = ThreadPoolExecutor(self._concurrency)
        try:
            asked = {pool.submit(self._ask, each, breaks): at for at, each in waiting.items()}
            for future in as_completed(asked):
                try:
                    written = future.result()
                except Disconnected as error:
                    broken = error
                    continue
                del waiting[asked[future]]
                self._arrived.put((asked[future], written, again))
        except BaseException:
            self._client.close()  # the others are broken off, not waited for
            raise
        finally:
            pool.shutdown(cancel_futures=True)
        return broken

    def _ask(self, request: ServerRequest, breaks: int) -> list[Completion]:
        # The cache of an older version's prompts is never used again.
        body = request.body | {"cache_salt": self._place.name}
        raw = self._client.ask(
            "POST", "/v1/completions", body, limit_bytes=request.limit_bytes, breaks=breaks
        )
        return self._read(raw, request, self._client)
