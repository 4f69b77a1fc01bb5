"""Making a server have the weights that are trained here: a folder, and a word to the server.

The requests are vLLM's (docs/vllm.md says which versions have them). What is written is what
``save_pretrained`` writes: the whole model, or, of a LoRA node, the adapter alone.
"""

import hashlib
import re
import shutil
from pathlib import Path

import torch
from safetensors import SafetensorError

from potluck.rollout.base import RolloutError
from potluck.rollout.line import Line
from potluck.rollout.model import LanguageModel

VERSION = re.compile(r"[0-9a-f]{24}(\.part)?")
"""Folders of ours: what else lies beside them is never touched."""
SAME_WIDTH = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Mirror:
    """What a server has of a model that is trained here.

    It is told to reload when the weights have changed since it was told last, and whenever it
    has slept: a sleeping server has thrown its weights away.
    """

    def __init__(
        self,
        language: LanguageModel,
        folder: Path,
        *,
        adapter: str = "",
        sleeps: bool = False,
    ) -> None:
        """
        Args:
            folder: of this node alone; the server must find it under the same path.
            adapter: the name under which the server loads the adapter of a LoRA node; empty:
                the model has none, and the server replaces the weights that it started with.
            sleeps: whether the server frees its GPU between two writings.
        """
        self.language, self.folder = language, folder.absolute()
        self.adapter, self.sleeps = adapter, sleeps
        self._there = ""

    def renew(self, line: Line) -> str:
        """Makes the server have the weights as they are now; returns a name of those weights.

        Raises:
            RolloutError: the disk is full, say, or the server does not reload.
        """
        version = bits_of(self.language.network, trained=True)
        if version == self._there:
            return version
        self._there = ""  # until it is known to be there again
        place = self._written(version)
        if self.sleeps:
            # Room for the cache only after the weights are in: loading needs some itself.
            line.ask("POST", "/wake_up?tags=weights")
        if self.adapter:
            self._load_adapter(line, place)
        else:
            kwargs = {"weights_path": str(place)}
            line.ask("POST", "/collective_rpc", {"method": "reload_weights", "kwargs": kwargs})
        if self.sleeps:
            line.ask("POST", "/wake_up?tags=kv_cache")
        if not self.adapter:
            line.ask("POST", "/reset_prefix_cache")
        for old in self.folder.iterdir():
            if old != place and VERSION.fullmatch(old.name):
                shutil.rmtree(old, ignore_errors=True)
        self._there = version
        return version

    def rest(self, line: Line) -> None:
        """Lets the server free its GPU, where it is to."""
        if self.sleeps:
            self._there = ""
            # Level 1 keeps a base model, which nobody sends again, in the CPU's memory.
            line.ask("POST", f"/sleep?level={1 if self.adapter else 2}")

    def _load_adapter(self, line: Line, place: Path) -> None:
        # Out and in again, not ``load_inplace``: older servers do not know it.
        name = {"lora_name": self.adapter}
        # Before the first round there is none to take out.
        line.ask("POST", "/v1/unload_lora_adapter", name, fine=(200, 400, 404))
        line.ask("POST", "/v1/load_lora_adapter", name | {"lora_path": str(place)})

    def _written(self, version: str) -> Path:
        """A folder that holds the weights, whole: it is made beside its place and renamed."""
        place = self.folder / version
        if place.exists():
            return place
        beside = place.with_suffix(".part")
        shutil.rmtree(beside, ignore_errors=True)
        try:
            self.language.network.save_pretrained(beside)
            self.language.tokenizer.save_pretrained(beside)
            beside.rename(place)
        except (OSError, SafetensorError) as error:
            shutil.rmtree(beside, ignore_errors=True)
            raise RolloutError(
                f"cannot write the weights for the server to {place}: {error}; make room, or "
                f"name another [node.NAME.server] folder"
            ) from error
        return place


def bits_of(network: torch.nn.Module, *, trained: bool) -> str:
    """A name of the trained, or the frozen, weights that changes when any of them does.

    24 hex digits: SHA-256 of each tensor's name and the sum of its bits taken as integers,
    computed where the weights are. (torch counts the changes of a tensor, but an optimiser with
    kernels of its own is not counted.) Two changes in one tensor could cancel out, by 2^-32 or
    so.
    """
    sums = {
        name: p.detach().view(SAME_WIDTH[p.element_size()]).sum(dtype=torch.int64)
        for name, p in network.named_parameters()
        if p.requires_grad == trained
    }
    text = "\n".join(f"{name} {int(total)}" for name, total in sums.items())
    return hashlib.sha256(text.encode()).hexdigest()[:24]
