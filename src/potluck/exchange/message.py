"""What a node says of a round, how it was made, and how much of it a reader takes."""

from collections.abc import Mapping
from dataclasses import dataclass

from potluck.types import Completion

FINGERPRINT_BYTES = 16
PROMPT_DIGEST_BYTES = 8
TEXT_CHARACTERS = 256
"""Of a run's name or a problem's id."""
BEYOND = 1 << 31
"""Every whole number is below it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a reader takes; a claim beyond it is refused before memory is set aside for it.

    These defaults are also the most that ``encode`` writes.
    """

    message_bytes: int = 1 << 24
    """Of a message as it came, and of its tokens once they are unpacked (8 bytes each)."""
    completions: int = 1 << 16
    tokens: int = 1 << 20
    """Of one completion."""
    vocabulary: int = BEYOND
    """Ids are below it."""


@dataclass(frozen=True, slots=True)
class Origin:
    """How completions were made. Fingerprints are the first 16 bytes of a SHA-256."""

    model: bytes
    tokenizer: bytes
    task: bytes
    """Of the task, and of how its problems are drawn and shared out."""
    temperature: float
    top_k: int
    top_p: float


@dataclass(frozen=True, slots=True)
class Message:
    """One node's word on one round: its own completions."""

    run: str
    round: int
    sender: str
    origin: Origin
    prompts: Mapping[str, bytes]
    """Of each problem that has a completion, the digest of its prompt's ids (8 bytes)."""
    completions: tuple[Completion, ...]
    """All by ``sender``."""
