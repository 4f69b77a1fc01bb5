"""Weights for a vLLM server: a folder of the model, or of a LoRA node's adapter, and requests to
reload it (docs/vllm.md says which versions have them)."""

import re
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from potluck.files import whole_folder
from potluck.model.loading import weights_digest
from potluck.model.policy import LanguageModel
from potluck.rollout.base import EngineSettings, RolloutError
from potluck.rollout.vllm.client import VllmClient

VERSION = re.compile(r"[0-9a-f]{24}(\.part)?")  # our folders; others beside them are never touched


class WeightSync:
    """A server's copy of a model that is trained here. It reloads when the weights have changed,
    and whenever it has slept between two writings: it has thrown its weights away."""

    def __init__(self, policy: LanguageModel, options: Any, settings: EngineSettings) -> None:
        place = Path(options.folder) if options.folder else settings.folder
        self.policy, self.sleeps = policy, options.sleeps
        self.folder = (place / settings.node / "served").absolute()
        # Without a name of an adapter the server's weights are replaced.
        self.adapter = options.model if settings.adapter else ""
        self._served_version = ""
        self.writing: Future[None] = Future()  # until it is done, the weights there must stay
        self.writing.set_result(None)
        self.apart: float | None = None  # of the last writing, as ``require_ours`` has it

    def snapshot(self) -> Path:
        """Write the weights of now into a folder of their name; RolloutError if that fails."""
        place = self.folder / weights_digest(self.policy.network, trained=True)
        if place.exists():
            return place
        try:
            with whole_folder(place) as beside:
                self.policy.network.save_pretrained(beside)
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
