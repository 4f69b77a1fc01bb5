"""Common parts of engines behind a server. Requests share an event loop in a thread of its own: a
notebook runs one in the main thread, and only a loop can break off what is under way."""

import asyncio
import json
import os
import ssl
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from threading import Event, Thread
from typing import Any, Generic, Self, TypeVar

import httpx2
import numpy as np

from potluck.files import one_line
from potluck.model.reader import Reader
from potluck.proxies import named_proxies, proxy_remark
from potluck.rollout.base import TICK_S, RolloutError
from potluck.types import End

CONNECT_S = 10.0
SAID_CHARACTERS = 300
POLL_S = 0.01
IS_IT_RUNNING = "is it running, and is [node.NAME.engine] url its own?"
WAYS_OUT = {  # by the status of an answer
    **dict.fromkeys(range(300, 400), "redirects are not followed: set url to where it leads"),
    401: "name the variable that holds its key in api_key_variable",
    403: "may this key use this model, and is it in api_key_variable?",
    404: "is the name of the model right, and url complete, such as https://HOST/v1?",
}
ROUNDING = 1e-3  # nats: a log-probability may lie so far above 0
NEVER = -9999.0  # as vLLM writes ln 0: JSON has no infinity
T = TypeVar("T")


class CutOff(Exception):
    """An answer ended before it was whole."""


class TooLong(CutOff):
    """An answer is longer than what was asked for; it is not read to its end."""


class NotWritten(Exception):
    """A model cannot have written this; the two arguments say why not, and the way out."""


@dataclass(frozen=True, slots=True)
class Address:
    """A server's URL and key, and how long to wait for it."""

    url: str
    timeout_s: float = 600.0  # longest wait for one answer, seconds, all attempts together
    api_key_variable: str = ""

    def key(self) -> str:
        """Read the key, "" if the server asks for none; raise RolloutError if it is not set, or no
        header can hold it: a library would put it into its error."""
        key = os.environ.get(self.api_key_variable, "").strip()
        variable = f"the environment variable {self.api_key_variable!r}"
        if not (key.isascii() and key.isprintable()):
            wanted = "expected printable ASCII on one line"
            raise RolloutError(f"{variable} holds signs that no key has; {wanted}")
        if self.api_key_variable and not key:
            way_out = "which is not set; set it, or drop api_key_variable"
            raise RolloutError(f"the key of {self.url} is to be in {variable}, {way_out}")
        return key

    def line(self, text: str) -> str:
        """Put what a server says on one line, without the key."""
        key = os.environ.get(self.api_key_variable, "").strip()
        return one_line(text.replace(key, "(the key)") if key else text, SAID_CHARACTERS)

    def reason(self, error: BaseException) -> str:
        """Say on one line what lies at the bottom of an error: libraries wrap it."""
        if isinstance(error, httpx2.ConnectTimeout):
            return f"no connection within {CONNECT_S:g} s"
        seen = {id(error)}  # an error can stand in its own chain
        inner = error.__cause__ or error.__context__
        while isinstance(inner, Exception) and id(inner) not in seen:
            error = inner
            seen.add(id(error))
            inner = error.__cause__ or error.__context__
        return self.line(f"{type(error).__name__}: {error}")


class Client:
    """A client of a server. It follows no redirect, which would take the key along, and each
    request has a connection of its own."""

    def __init__(self, address: Address, root: str, *, proxies: bool) -> None:
        """Take the ``root`` that paths are added to; ``proxies`` of the environment are used."""
        self.address, self._root, key = address, root, address.key()
        try:
            httpx2.URL(root)
        except httpx2.InvalidURL as error:
            wrong = f"the server's url is {address.url!r} ({error})"
            raise RolloutError(f"{wrong}; expected https://HOST or http://HOST:PORT") from None
        # Packed answers are not asked for, nor unpacked: a few bytes can hold gigabytes.
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        headers |= {"Authorization": f"Bearer {key}"} if key else {}
        self.remark = proxy_remark(root) if proxies else ""
        """Words to put behind a failure: that a proxy was asked."""
        try:
            self._http = httpx2.AsyncClient(
                headers=headers,
                timeout=httpx2.Timeout(None, connect=CONNECT_S),  # the callers bound all of it
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
                # Certificates are slow to read, and for https alone; SSL_CERT_FILE names others.
                verify=root.startswith("https:") and (proxies or ssl.create_default_context()),
                trust_env=proxies,
            )
        except (ImportError, ValueError, httpx2.InvalidURL) as error:  # a proxy of no known kind
            named = named_proxies()
            if not proxies or not named:
                raise
            # What the library says has a part of the password in it.
            why = one_line(str(error)) if isinstance(error, ImportError) else "it is no such URL"
            raise RolloutError(
                f"{address.url} cannot be asked through a proxy ({named}: {why}); give one that "
                f"begins with http://, signs such as / in its password as %2F, or unset the "
                f"variable"
            ) from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def send(
        self, method: str, path: str, body: object = None, *, limit_bytes: int = 2**20
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Return status, headers and body of the answer. Raise httpx2.TransportError if none comes,
        and where the status is good, CutOff if it is not whole, TooLong beyond ``limit_bytes``."""
        content, raw = None if body is None else json.dumps(body).encode(), bytearray()
        async with self._http.stream(method, self._root + path, content=content) as response:
            try:
                async for piece in response.aiter_raw():
                    raw += piece
                    if len(raw) > limit_bytes:
                        raise TooLong
            except (httpx2.TransportError, TooLong) as error:
                if response.is_success:
                    raise error if isinstance(error, TooLong) else CutOff(str(error)) from error
            return response.status_code, response.headers, bytes(raw)


def begin(work: Callable[[], T]) -> Future[T]:
    """Do ``work`` in a thread that the process does not wait for."""
    future = Future[T]()

    def do() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=do, daemon=True).start()
    return future


def begin_loop(work: Coroutine[Any, Any, T], ended: Event) -> Future[T]:
    """Run a loop for ``work`` in such a thread; cancel it soon after ``ended`` is set."""

    async def watched() -> T:
        task = asyncio.ensure_future(work)
        while not (task.done() or ended.is_set()):
            await asyncio.wait([task], timeout=TICK_S)
        task.cancel()
        return await task

    return begin(partial(asyncio.run, watched()))


def run_loop(work: Coroutine[Any, Any, T]) -> T:
    """Wait for ``work`` in such a thread."""
    return begin_loop(work, Event()).result()


async def together(works: Iterable[Coroutine[Any, Any, object]]) -> None:
    """Wait for all; cancel the others once one raises, and raise that."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Ears(Generic[T]):
    """Answers of an environment to episodes that go on independently, each in a coroutine."""

    def __init__(self, look: Callable[[float], Iterable[tuple[int, T]]]) -> None:
        """Take what returns the answers that have come, by episode."""
        self._look, self._come, self._next_s = look, dict[int, T](), 0.0

    async def hear(self, episode: int) -> T:
        """Wait for the answer to an episode's newest turn."""
        # Looked for, by one for all, and not waited for: others go on meanwhile, in this thread.
        while episode not in self._come:
            if time.monotonic() >= self._next_s:
                self._come.update(self._look(0.0))
                self._next_s = time.monotonic() + POLL_S
            await asyncio.sleep(0.0 if episode in self._come else POLL_S)
        return self._come.pop(episode)


def read_written(
    tokens: Sequence[int], logps: Sequence[float], finish: str, *, most: int, policy: Reader
) -> tuple[np.ndarray, np.ndarray, End]:
    """Read the tokens, log-probabilities and end of a completion of ``most`` tokens at most, which
    the server calls ended by ``finish``; raise NotWritten if the model cannot have written it."""
    stops, size = policy.stop_ids, f"with {len(tokens)} tokens"
    if not 1 <= len(tokens) <= most:
        raise NotWritten(size, f"1 to {most} were asked for")
    if len(logps) != len(tokens):
        raise NotWritten(f"{size} but {len(logps)} log-probabilities", "each token needs one")
    if foreign := [id for id in tokens if not 0 <= id < policy.vocabulary]:
        way_out = f"the tokenizer has ids below {policy.vocabulary}: is it that of its model?"
        raise NotWritten(f"with token id {foreign[0]}", way_out)
    if stray := [logp for logp in logps if not NEVER < logp <= ROUNDING]:
        raise NotWritten(f"with log-probability {stray[0]}", "none is as unlikely")
    if not stops.isdisjoint(tokens[:-1]):
        raise NotWritten("with words after a stop token", "nothing may follow one")
    if policy.holds_stop_text(tokens[:-1]):
        raise NotWritten("with words after a stop text", "nothing may follow one")
    has_ended = tokens[-1] in stops or policy.holds_stop_text(tokens)
    if finish == "stop" and not has_ended:
        raise NotWritten(
            f"to its end, but the last token, {tokens[-1]}, is no stop token",
            "it must keep the stop token in token_ids; a token that only the server stops at "
            "belongs into [sampling] stop",
        )
    if finish != "stop" and len(tokens) < most:
        raise NotWritten(
            f"and ended it ({finish[:20]!r}) after {len(tokens)} of {most} tokens",
            "raise its --max-model-len, or what it has in its place",
        )
    logp_T = np.minimum(np.array(logps, np.float32), 0)
    return np.array(tokens, np.int32), logp_T, "stop" if has_ended else "length"
