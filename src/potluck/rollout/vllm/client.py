"""Requests to a vLLM server, which may be started anew at any time, and the weights that it gets: a
folder of the model, or of a LoRA node's adapter. docs/vllm.md says which versions reload it."""

import asyncio
import hashlib
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import torch
from safetensors import SafetensorError
from torch import Tensor

from potluck.files import whole_folder
from potluck.model.digest import name_of
from potluck.model.loading import weights_digest
from potluck.model.policy import LanguageModel
from potluck.model.rounding import rounded
from potluck.rollout.base import EngineSettings, RolloutError
from potluck.rollout.server import IS_IT_RUNNING, WAYS_OUT, Address, Client, CutOff, TooLong

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
"""Pause before a second attempt; it doubles from one attempt to the next."""
GONE = (502, 503, 504)  # statuses of what stands before a server that is gone, or starts
TRIES_OF_500 = 3  # such an error may pass, but is not worth all of ``timeout_s``
VERSION = re.compile(r"[0-9a-f]{24}(\.part)?")  # our folders; others beside them are never touched
NO_FOLDER = "it does not see that folder: name one that both see in [node.NAME.engine] folder"
NO_RELOAD = "docs/vllm.md: it may have another model, or be too old to reload"
NO_DEVELOPMENT = "start it with VLLM_SERVER_DEV_MODE=1"
NOT_SWITCHED_ON = "this must be switched on when it is started, see docs/vllm.md"
SAYINGS = (  # ways out by the path's beginning and what vLLM 0.27 to 0.32 say; see docs/vllm.md
    ("/v1/load_lora_adapter", "No adapter found", NO_FOLDER),
    ("/collective_rpc", "Repo id must be in the form", NO_FOLDER),
    ("/collective_rpc", "status 500", NO_RELOAD),
    ("/collective_rpc", "status 404", NO_DEVELOPMENT),
    ("/sleep", "status 404", NO_DEVELOPMENT),
    ("/wake_up", "status 404", NO_DEVELOPMENT),
    ("/v1/completions", "status 404", "see its log, and docs/vllm.md"),
    ("/", "CERTIFICATE_VERIFY_FAILED", "name the file of its authority in SSL_CERT_FILE"),
    ("/", "status 404", NOT_SWITCHED_ON),
    ("/", "status 405", NOT_SWITCHED_ON),
)


class Disconnected(RolloutError):
    """A connection broke. A server that comes back has the weights that it was started with."""


class VllmClient(Client):
    """A client of a vLLM server."""

    def __init__(self, address: Address) -> None:
        root = address.url.rstrip("/").removesuffix("/v1").rstrip("/")
        super().__init__(address, root, proxies=False)
        self.breaks = 0  # of connections so far, refused ones too

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        limit_bytes: int = 2**20,
        fine: Sequence[int] = (200,),
        breaks: int | None = None,
    ) -> bytes:
        """Wait for the body of an answer whose status is one of ``fine``; else raise RolloutError.
        With a number of ``breaks``, raise Disconnected instead of asking once there are more."""
        pause_s, stumbles, trouble = FIRST_PAUSE_S, 0, ""
        try:
            async with asyncio.timeout(self.address.timeout_s):
                while breaks in (None, self.breaks):
                    try:
                        status, _, raw = await self.send(
                            method, path, body, limit_bytes=limit_bytes
                        )
                    except TooLong:
                        raise self.refuse(
                            f"answered {path} with more than {limit_bytes} bytes",
                            "nothing that was asked for is as long",
                        ) from None
                    except (CutOff, httpx2.TransportError) as error:
                        trouble = self.address.reason(error)
                        if "CERTIFICATE_VERIFY_FAILED" in trouble:
                            raise self._failed(path, trouble) from error
                        self.breaks += 1
                    else:
                        if status in fine:
                            return raw
                        said = self.address.line(raw.decode(errors="replace"))
                        trouble = f"status {status} {said}".strip()
                        stumbles += status == 500
                        passes = stumbles < TRIES_OF_500 if status == 500 else status == 429
                        if not passes and status not in GONE:
                            raise self._failed(path, trouble, status)
                        self.breaks += status in GONE
                    if breaks in (None, self.breaks):
                        await asyncio.sleep(pause_s)
                        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        except TimeoutError:
            raise self._failed(path, trouble) from None
        raise Disconnected(str(self._failed(path, trouble or "another connection to it broke")))

    def refuse(self, found: str, way_out: str) -> RolloutError:
        """Make the error for an answer that is not what was asked for."""
        return RolloutError(f"the server at {self.address.url} {found}; {way_out}")

    def _failed(self, path: str, trouble: str, status: int = 0) -> RolloutError:
        known = (out for at, says, out in SAYINGS if path.startswith(at) and says in trouble)
        way_out = WAYS_OUT.get(status, "see its log, and docs/vllm.md")
        if not status:
            way_out = IS_IT_RUNNING if trouble else "raise timeout_s if it only is slow"
        trouble = trouble or f"no answer within timeout_s = {self.address.timeout_s:g}"
        return self.refuse(f"does not do {path} ({trouble})", next(known, way_out))


async def require_server(address: Address, model: str, *, adapter: bool, longest: int) -> None:
    """Raise RolloutError unless a server is there now that serves ``model``, or is to get it as
    an adapter, with ``longest`` tokens of prompt and completion together."""
    async with VllmClient(replace(address, timeout_s=min(address.timeout_s, 5.0))) as client:
        raw = await client.ask("GET", "/v1/models")
        try:
            cards = {card["id"]: card for card in msgspec.json.decode(raw)["data"]}
        except (msgspec.DecodeError, UnicodeError, RecursionError, KeyError, TypeError) as error:
            raise client.refuse("lists no models", "is its url that of a server?") from error
        if not adapter and model not in cards:
            there = ", ".join(map(repr, cards)) or "none"
            raise client.refuse(
                f"serves {there}, not {model!r}", "set [node.NAME.engine] model to one of them"
            )
        lengths = [card.get("max_model_len") for card in cards.values()]
        if short := [n for n in lengths if isinstance(n, int) and n < longest]:
            raise client.refuse(
                f"has room for {short[0]} tokens, but prompt and completion may have {longest}",
                "raise its --max-model-len, or lower [sampling] max_total_tokens",
            )


class WeightSync:
    """A server's copy of a model that is trained here. It reloads when the weights have changed,
    and whenever it has slept between two writings: it has thrown its weights away."""

    def __init__(self, policy: LanguageModel, options: Any, settings: EngineSettings) -> None:
        place = Path(options.folder) if options.folder else settings.folder
        self.policy, self.sleeps = policy, options.sleeps
        self.folder = (place / settings.node / "served").absolute()
        self.dtype = policy.came_as if options.dtype == "auto" else getattr(torch, options.dtype)
        # Without a name of an adapter the server's weights are replaced.
        self.adapter = options.model if settings.adapter else ""
        self._served_version = ""
        self.writing: Future[None] = Future()  # until it is done, the weights there must stay
        self.writing.set_result(None)
        self.apart: float | None = None  # of the last writing, as ``require_ours`` has it

    def snapshot(self) -> Path:
        """Write the weights of now into a folder of their name; RolloutError if that fails."""
        network, version = self.policy.network, weights_digest(self.policy.network, trained=True)
        rounds = not self.adapter and any(p.dtype != self.dtype for p in network.parameters())
        if rounds:
            named = f"{version} {name_of(self.dtype)}"
            version = hashlib.sha256(named.encode()).hexdigest()[:24]
        place = self.folder / version
        if place.exists():
            return place
        try:
            with whole_folder(place) as beside:
                # In main memory: a GPU may have no room for a copy.
                made = rounded(network, self.dtype, torch.device("cpu")) if rounds else network
                made.save_pretrained(beside)
                del made
                self.policy.tokenizer.save_pretrained(beside)
        except (OSError, SafetensorError) as error:
            raise RolloutError(
                f"cannot write the weights for the server to {place}: {error}; make room, or "
                f"name another [node.NAME.engine] folder"
            ) from error
        return place

    async def push(self, client: VllmClient, place: Path) -> None:
        """Have the server load the weights of ``place`` if it has others."""
        if place.name == self._served_version:
            return
        self.forget()  # until they are known to be there again
        if self.sleeps:
            # Room for the cache only after the weights are in: loading needs some itself.
            await client.ask("POST", "/wake_up?tags=weights")
        if self.adapter:
            # Out and in again, not ``load_inplace``: older servers do not know it.
            # Before the first round there is none to take out.
            name = {"lora_name": self.adapter}
            await client.ask("POST", "/v1/unload_lora_adapter", name, fine=(200, 400, 404))
            await client.ask("POST", "/v1/load_lora_adapter", name | {"lora_path": str(place)})
        else:
            reload = {"method": "reload_weights", "kwargs": {"weights_path": str(place)}}
            await client.ask("POST", "/collective_rpc", reload)
        if self.sleeps:
            await client.ask("POST", "/wake_up?tags=kv_cache")
        if not self.adapter:
            await client.ask("POST", "/reset_prefix_cache")
        for old in self.folder.iterdir():
            if old != place and VERSION.fullmatch(old.name):
                shutil.rmtree(old, ignore_errors=True)
        self._served_version = place.name

    def forget(self) -> None:
        """Take the server to have other weights: it may have been started anew."""
        self._served_version = ""

    async def sleep(self, client: VllmClient) -> None:
        if self.sleeps:
            self.forget()
            # Level 1 keeps the base model, which is not sent again, in the CPU's memory.
            await client.ask("POST", f"/sleep?level={1 if self.adapter else 2}")


def trained_copy(network: torch.nn.Module) -> dict[str, Tensor]:
    """Copy the trained weights into main memory."""
    trained = (pair for pair in network.named_parameters() if pair[1].requires_grad)
    return {name: each.detach().to("cpu", copy=True) for name, each in trained}


@contextmanager
def as_it_was(network: torch.nn.Module, kept: Mapping[str, Tensor]) -> Iterator[None]:
    """Put ``kept`` into the network for a block, and afterwards what it has now, to the bit."""
    now = trained_copy(network) if kept else {}
    try:
        _put(network, kept)
        yield
    finally:
        _put(network, now)


@torch.no_grad()
def _put(network: torch.nn.Module, weights: Mapping[str, Tensor]) -> None:
    for name, each in weights.items():
        network.get_parameter(name).copy_(each)
