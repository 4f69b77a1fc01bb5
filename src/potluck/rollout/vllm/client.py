"""Requests to one HTTP server: bounded in time and in bytes, and all broken off at once.

The standard library's client follows no redirect, uses no proxy and pools no connections.
"""

import json
import os
import ssl
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from socket import SHUT_RDWR, socket
from urllib.parse import SplitResult, urlsplit

from potluck.files import one_line
from potluck.rollout.base import RolloutError

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
"""Pause before a second attempt; it doubles from one attempt to the next."""
CONNECT_S = 10.0
GONE = (502, 503, 504)
"""Statuses of what stands before a server that is gone, or starts."""
LATER = (429, *GONE)
"""Statuses after which is asked again while there is time."""
TRIES_OF_500 = 3
"""Attempts after status 500: such an error may pass, but is not worth all of ``timeout_s``."""
SAID_CHARACTERS = 300
REDIRECTED = "redirects are not followed: set url to where it leads"
NO_KEY = "name the variable that holds its key in api_key_variable"
NO_FOLDER = "it does not see that folder: name one that both see in [node.NAME.engine] folder"
OTHER_SIZES = "its model has other sizes, and is broken now: restart it with the node's own"
NO_DEVELOPMENT = "start it with VLLM_SERVER_DEV_MODE=1"
WAYS_OUT = (
    ("/v1/load_lora_adapter", "No adapter found", NO_FOLDER),
    ("/v1/load_lora_adapter", "max_lora_rank", "restart it with --max-lora-rank of lora.r or more"),
    ("/collective_rpc", "Repo id must be in the form", NO_FOLDER),
    ("/collective_rpc", "Worker failed with error ''", OTHER_SIZES),
    ("/collective_rpc", "The size of tensor", OTHER_SIZES),
    ("/collective_rpc", "status 500", "see its log: vLLM may be too old to reload from a path"),
    ("/collective_rpc", "status 404", NO_DEVELOPMENT),
    ("/sleep", "status 404", NO_DEVELOPMENT),
    ("/wake_up", "status 404", NO_DEVELOPMENT),
)
"""Ways out by the path's beginning and what the trouble says, in the words of vLLM 0.27 to 0.32."""


@dataclass(frozen=True, slots=True)
class Address:
    """A server's URL and key, and how long to wait for it."""

    url: str
    """``http://HOST:PORT``, with or without ``/v1`` at the end."""
    timeout_s: float = 600.0
    """Longest wait for one answer, seconds, all attempts together."""
    api_key_variable: str = ""

    def parts(self) -> SplitResult:
        """Split the URL; raise RolloutError if no such URL can be asked."""
        with suppress(ValueError):
            parts = urlsplit(self.url)
            if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
                return parts
        raise RolloutError(f"the server's url is {self.url!r}; expected http://HOST:PORT")

    def key(self) -> str:
        """Read the key, "" if the server asks for none; raise RolloutError if it is not set, or
        no header can hold it: a library would say so with the key in its text."""
        key = os.environ.get(self.api_key_variable, "").strip()
        if not (key.isascii() and key.isprintable()):
            raise RolloutError(
                f"the environment variable {self.api_key_variable!r} holds signs that no key has; "
                f"expected printable ASCII on one line"
            )
        if key or not self.api_key_variable:
            return key
        raise RolloutError(
            f"the key of the server at {self.url} is to be in the environment variable "
            f"{self.api_key_variable!r}, which is not set; set it, or drop api_key_variable"
        )

    def line(self, text: str) -> str:
        """Put what a server says on one line, without the key."""
        key = os.environ.get(self.api_key_variable, "").strip()
        return one_line(text.replace(key, "(the key)") if key else text, SAID_CHARACTERS)


class Disconnected(RolloutError):
    """A connection broke. A server that comes back has the weights that it was started with."""


class Cancelled(Exception):
    """The request was broken off on purpose: another one failed, or the run stops."""


class Client:
    """A client of a server, for many threads; leaving its block breaks off all requests."""

    def __init__(self, address: Address) -> None:
        self.address, self._parts, self._key = address, address.parts(), address.key()
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._sockets: set[socket] = set()
        self.breaks = 0
        """Connections so far that were refused or broke, on any thread."""

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Break off all requests, and refuse new ones."""
        self._ended.set()
        with self._lock:
            for open_socket in self._sockets:
                with suppress(OSError):
                    open_socket.shutdown(SHUT_RDWR)

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        limit_bytes: int = 2**20,
        fine: Sequence[int] = (200,),
        breaks: int | None = None,
    ) -> bytes:
        """Wait for the body of the answer, whose status is one of ``fine``.

        ``body`` becomes JSON (None: the request has none). Raise RolloutError for any other status,
        no answer in time, or one beyond ``limit_bytes``, which is not read to its end; Cancelled
        if the block of this client was left meanwhile. With a number of ``breaks``, raise
        Disconnected instead of asking once there are more.
        """
        deadline = time.monotonic() + self.address.timeout_s
        pause_s, stumbles, trouble = FIRST_PAUSE_S, 0, "another connection to it broke"
        while True:
            if breaks not in (None, self.breaks):
                raise Disconnected(str(self._failed(path, trouble)))
            try:
                status, raw = self._once(method, path, body, limit_bytes, deadline)
            except (OSError, HTTPException) as error:
                if self._ended.is_set():
                    raise Cancelled from error
                if isinstance(error, TimeoutError | ssl.SSLCertVerificationError):
                    raise self._failed(path, self.address.line(str(error))) from error
                trouble = self.address.line(str(error) or type(error).__name__)
                self._count_break()
            else:
                if status in fine:
                    return raw
                said = self.address.line(raw.decode(errors="replace"))
                trouble = f"status {status} {said}".strip()
                stumbles += status == 500
                if status not in LATER and not (status == 500 and stumbles < TRIES_OF_500):
                    raise self._failed(path, trouble, status)
                if status in GONE:
                    self._count_break()
            if breaks not in (None, self.breaks):
                continue
            if time.monotonic() + pause_s > deadline:
                raise self._failed(path, trouble)
            pause_s = self.pause(pause_s)

    def pause(self, seconds: float) -> float:
        """Wait between two attempts; return the next pause, or raise Cancelled if closed."""
        if self._ended.wait(seconds):
            raise Cancelled
        return min(2 * seconds, LONGEST_PAUSE_S)

    def _count_break(self) -> None:
        with self._lock:
            self.breaks += 1

    def refuse(self, found: str, way_out: str) -> RolloutError:
        """Make the error for an answer that is not what was asked for."""
        return RolloutError(f"the server at {self.address.url} {found}; {way_out}")

    def _once(
        self, method: str, path: str, body: object, limit_bytes: int, deadline: float
    ) -> tuple[int, bytes]:
        parts = self._parts
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=min(CONNECT_S, _left(deadline)))
        headers = {"Content-Type": "application/json", "Connection": "close"}
        headers |= {"Authorization": f"Bearer {self._key}"} if self._key else {}
        used: socket | None = None
        try:
            try:
                connection.connect()
            except TimeoutError as error:  # its machine may be starting
                _left(deadline)
                raise ConnectionError(f"no connection within {CONNECT_S:g} s") from error
            used = connection.sock
            with self._lock:
                if self._ended.is_set():
                    raise Cancelled
                self._sockets.add(used)
            used.settimeout(_left(deadline))
            payload = None if body is None else json.dumps(body).encode()
            prefix = parts.path.rstrip("/").removesuffix("/v1")
            connection.request(method, prefix + path, payload, headers)
            with connection.getresponse() as response:
                return response.status, self._read(response, used, path, limit_bytes, deadline)
        finally:
            with self._lock:
                if used:
                    self._sockets.discard(used)
            connection.close()

    def _read(
        self, response: HTTPResponse, used: socket, path: str, limit_bytes: int, deadline: float
    ) -> bytes:
        # A socket's timeout alone would begin anew with each piece.
        body = bytearray()
        while piece := response.read1(2**16):
            body += piece
            if len(body) > limit_bytes:
                raise self.refuse(
                    f"answered {path} with more than {limit_bytes} bytes",
                    "nothing that was asked for is as long",
                )
            used.settimeout(_left(deadline))
        if response.length:  # bytes that were announced and never came
            raise IncompleteRead(bytes(body), response.length)
        return bytes(body)

    def _failed(self, path: str, trouble: str, status: int = 0) -> RolloutError:
        way_out = "is it running, and is [node.NAME.engine] url its own?"
        known = (out for at, says, out in WAYS_OUT if path.startswith(at) and says in trouble)
        if found := next(known, ""):
            way_out = found
        elif 300 <= status < 400:
            way_out = REDIRECTED
        elif status in (401, 403):
            way_out = NO_KEY
        elif status in (404, 405) and not path.startswith("/v1/completions"):
            way_out = "this must be switched on when it is started, see docs/vllm.md"
        elif status:
            way_out = "see its log, and docs/vllm.md"
        elif trouble.startswith("timed out"):
            trouble = f"no answer within timeout_s = {self.address.timeout_s:g}"
            way_out = "raise timeout_s if it only is slow"
        return self.refuse(f"does not do {path} ({trouble})", way_out)


def _left(deadline: float) -> float:
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("timed out")
    return left_s
