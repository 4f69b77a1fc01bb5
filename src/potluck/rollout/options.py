"""The tables [node.NAME.engine]: what an engine tells of itself before torch is loaded."""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal
from urllib.parse import urlsplit

from msgspec import Meta

from potluck.blocks import rows_of_a_block
from potluck.fields import ConfigError, Count, Options, Positive
from potluck.types import Problem, Sampling

if TYPE_CHECKING:
    from potluck.model.policy import LanguageModel
    from potluck.model.shape import Shape
    from potluck.rollout.base import Engine, EngineSettings
    from potluck.rollout.server import Address
    from potluck.rollout.texts.base import TextEngine

BYTES = {"float32": 4, "bfloat16": 2}
TOLERANCE = {"float32": 0.01, "bfloat16": 0.1}
"""Nats a token. Another machine or the compact codec cost up to 0.001, bfloat16 .02 to .05 with
pretrained models."""
URL = re.compile(r"https?://[^\s/@?#:][^\s/@?#]*(/[^\s?#]*)?")


@dataclass(frozen=True, slots=True)
class Writing:
    """Size of one writing: ``rows`` completions at once of so many ``problems``; ``prompt`` and
    ``longest`` are the tokens of the longest prompt, alone and with its completion. ``held_in`` is
    the format of the weights while they are trained, ``scatter`` a factor on what small tensors
    take: 1 where they lie without gaps."""

    shape: "Shape"
    rows: int
    problems: int
    prompt: int
    longest: int
    dtype: str
    held_in: str
    attention: str
    scatter: float
    device: str  # its type, as torch names it


class EngineOptions(Options, frozen=True, kw_only=True):
    """A table [node.NAME.engine]; each engine has a subclass with its name as tag."""

    may_change: ClassVar[bool] = False  # in a resumed run: they say where the engine is, say
    several_processes: ClassVar[bool] = False  # which are one node, can each write with it
    has_weights: ClassVar[bool] = True  # False: the node is an author only, and learns nothing
    trains: ClassVar[bool] = False  # True: what writes also learns, and has the weights
    uses: ClassVar[frozenset[str] | None] = None  # keys of its node that may be set; None: all

    @property
    def sends(self) -> tuple[tuple[str, str], ...]:
        """Environment variables whose values it sends, each with the url that it sends it to."""
        return ()

    def reads(self, model: str) -> str:
        """Name the folder or id that has the tokenizer of the node's ``model``."""
        return model

    def build(self, policy: "LanguageModel", settings: "EngineSettings") -> "Engine":
        """Build the engine that writes with the weights of ``policy``."""
        raise NotImplementedError

    def bytes_needed(self, writing: Writing) -> int:
        """Count the bytes that a writing takes on the node's device, beside its state."""
        return 0

    def log_probability_tolerance(self, dtype: str) -> float:
        """Tell the allowed mean difference of scores from those written in ``dtype``, nats."""
        raise NotImplementedError

    def require_sense(self, at: str, *, dtype: str, sampling: Sampling) -> None:
        """Raise ConfigError where the options contradict those of ``[at]`` or of [sampling]."""

    def require_ready(self, *, adapter: bool, longest: int) -> None:
        """Raise RolloutError unless the engine can write ``longest`` tokens now."""

    @property
    def title(self) -> str:
        """Name of what writes, where the node has no model."""
        return str(self.__struct_config__.tag)


class HFOptions(EngineOptions, frozen=True, kw_only=True, tag_field="name", tag="hf"):
    """The node's own model writes, with ``sampling_dtype`` and ``sampling_rows`` of the node."""

    tolerance: Annotated[float, Meta(ge=0)] = 0.0
    """Largest mean |difference| between log-probabilities as it writes and as it learns, nats a
    token, in the first round; beyond it the run stops. 0: .01 in float32, .1 in bfloat16."""

    several_processes: ClassVar[bool] = True
    may_change: ClassVar[bool] = True  # a machine may round otherwise

    def build(self, policy: "LanguageModel", settings: "EngineSettings") -> "Engine":
        from potluck.rollout.hf import HFEngine

        learns_in = str(policy.dtype).removeprefix("torch.")
        usual = max(TOLERANCE[settings.dtype], TOLERANCE[learns_in])
        return HFEngine(policy, settings, self.tolerance or usual)

    def bytes_needed(self, writing: Writing) -> int:
        """Take the larger of reading prompts and drawing the last token, and a copy's bytes.

        Reading keeps the prompts' keys and values, and one layer's activations at a time. Drawing
        keeps those of whole rows; the layer at work has its own twice, as they grow by one token,
        and eager attention spreads them out over its heads. The logits of a block take 24 bytes
        besides: in float32, with their logarithms and shares, and the running sums in float64.
        """
        shape, each = writing.shape, BYTES[writing.dtype]
        copied = shape.parameters if writing.dtype != writing.held_in else 0
        cache = 2 * shape.keys * each
        caches = round(writing.scatter * cache * shape.layers)
        layer = 3 * (shape.intermediate + shape.hidden) * each
        spread = 2 * (shape.keys + shape.attention * (writing.attention == "eager")) * each
        reading = writing.problems * writing.prompt * (caches + layer)
        tokens = writing.rows * writing.longest
        drawing = tokens * caches
        in_block = min(writing.rows, rows_of_a_block(shape.vocabulary, writing.device))
        logits = shape.vocabulary * (each * writing.rows + 24 * in_block)
        drawing += max(tokens * spread, logits)
        return copied * each + max(reading, drawing)

    def log_probability_tolerance(self, dtype: str) -> float:
        return TOLERANCE[dtype]


class ServedOptions(EngineOptions, frozen=True, kw_only=True):
    """A server writes."""

    url: str
    """Address of the server, ``https://HOST`` or ``http://HOST:PORT``; of the engine "openai"
    ``https://HOST/v1``, to which "/chat/completions" is added."""
    api_key_variable: str = ""
    """Environment variable that holds the server's key; empty: it asks for none."""
    timeout_s: Positive = 600.0
    """Longest wait for one answer, retries included. Seconds."""

    may_change: ClassVar[bool] = True  # it may be on another machine each time
    of_library: ClassVar[tuple[str, ...]] = ()  # variables that a library sends to any url

    def require_sense(self, at: str, *, dtype: str, sampling: Sampling) -> None:
        with suppress(ValueError):  # letters of other alphabets look like those of a known host
            if URL.fullmatch(self.url) and self.url.isascii() and urlsplit(self.url).port != 0:
                return
        wanted = "https://HOST/v1 or http://HOST:PORT"
        raise ConfigError(f"[{at}.engine] url is {self.url!r}; expected {wanted}")

    @property
    def sends(self) -> tuple[tuple[str, str], ...]:
        own = [self.api_key_variable] if self.api_key_variable else []
        sent = [*own, *(variable for variable in self.of_library if variable in os.environ)]
        return tuple((variable, self.url) for variable in dict.fromkeys(sent))

    @property
    def address(self) -> "Address":
        from potluck.rollout.server import Address

        return Address(self.url, self.timeout_s, self.api_key_variable)


class VllmOptions(ServedOptions, frozen=True, kw_only=True, tag_field="name", tag="vllm"):
    """A vLLM server writes; it gets the node's weights in each round: docs/vllm.md."""

    model: str
    """Name under which the server has the model; for a LoRA node, a name for its adapter."""
    folder: str = ""
    """Folder for the weights, at the same path on the server; empty: one in the run folder."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Type in which the weights are written for the server, an adapter's apart. auto: that in which
    the model came, which the server takes too if it is started without ``--dtype``."""
    sleeps: bool = False
    """True: the server frees its GPU memory while the node learns (``--enable-sleep-mode``)."""
    overlap: bool = False
    """True: the server writes the next round while the node learns, with weights one round old."""
    concurrency: Count = 64
    """Problems that the server is asked for at once."""
    tolerance: Positive = 0.1
    """Largest mean |difference| between the server's log-probabilities and the node's own, nats a
    token; beyond it the run stops. bfloat16 costs .02 to .05 with pretrained models."""

    def build(self, policy: "LanguageModel", settings: "EngineSettings") -> "Engine":
        from potluck.rollout.vllm.client import WeightSync
        from potluck.rollout.vllm.engine import ServerEngine

        return ServerEngine(policy, settings, self, WeightSync(policy, self, settings))

    def log_probability_tolerance(self, dtype: str) -> float:
        return self.tolerance

    def require_sense(self, at: str, *, dtype: str, sampling: Sampling) -> None:
        super().require_sense(at, dtype=dtype, sampling=sampling)
        contradictions = {
            f"[{at}.engine] overlap = true has the server write while the node learns, and sleeps "
            f"= true has it sleep then; drop one of the two": self.overlap and self.sleeps,
            f"[{at}] sampling_dtype is {dtype!r}, but its server writes in a format of its own "
            f"(vllm serve --dtype); drop one of the two": dtype != "float32",
            f"[{at}.engine] 'vllm' can tell log-probabilities at temperature 1, or without top_k "
            f"and top_p, but [sampling] has {sampling}; change one of "
            f"them": sampling.temperature != 1 and sampling.truncates,
        }
        if found := [text for text, wrong in contradictions.items() if wrong]:
            raise ConfigError(found[0])

    def require_ready(self, *, adapter: bool, longest: int) -> None:
        from potluck.rollout.server import run_loop
        from potluck.rollout.vllm.client import require_server

        run_loop(require_server(self.address, self.model, adapter=adapter, longest=longest))


class TextOptions(EngineOptions, frozen=True, kw_only=True):
    """An engine of an author only (``rollout/texts``)."""

    has_weights: ClassVar[bool] = False
    uses: ClassVar[frozenset[str] | None] = frozenset({"engine", "weight", "stranger"})

    def open(self, settings: "EngineSettings") -> "TextEngine":
        """Build the author; raise RolloutError if its file or its library is not here."""
        raise NotImplementedError

    def coverage(self, problems: Sequence[Problem]) -> str:
        """Say in a clause which of ``problems`` it can write to; "": all. RolloutError if none."""
        return ""
