"""The state of a node at one moment, as it tells it: in its folder, and to the swarm. Nothing is
decided by it: what others say here is for people.
"""

from typing import Annotated

from msgspec import Meta, Struct

from potluck.reports.rounds import AuthorReport
from potluck.reports.statistics import Number

MOST_AUTHORS = 16
"""Authors in a status line: those of the last round, by name."""
LINE_BYTES = 2048
"""Largest status line, its signature included."""

Name = Annotated[str, Meta(max_length=32)]
Short = Annotated[str, Meta(max_length=120)]


class AuthorStatus(Struct, frozen=True, array_like=True):
    """Numbers of an author's ``AuthorReport``. New ones come last, and none is moved."""

    completions: int = 0
    reward_mean: Number = None
    success_weight: Number = None
    filtered_share_negative: Number = None
    effective_sample_size: Number = None
    k1: Number = None
    gradient_share: Number = None


def author_status(report: AuthorReport) -> AuthorStatus:
    return AuthorStatus(*(getattr(report, name) for name in AuthorStatus.__struct_fields__))


class StatusLine(Struct, frozen=True, kw_only=True):
    """A node's words about itself."""

    node: Name
    run: Short
    time_s: float
    """Seconds since 1970, by its own clock."""
    version: Short = ""
    model: Short = ""
    parameters: int = 0
    round: int = 0
    """Rounds done."""
    rounds: int = 0
    """Rounds of the whole run."""
    phase: Short = ""
    """write, wait, learn, evaluate; "ended", "stopped"; empty: between two."""
    done: int = 0
    total: int = 0
    """Work done in the phase, of all its work."""
    tokens_per_s: float | None = None
    sent_bytes: int | None = None
    received_bytes: int | None = None
    reward: float | None = None
    """Mean reward of what it wrote in its last round."""
    accuracy: float | None = None
    """Its last validation accuracy."""
    authors: dict[Name, AuthorStatus] = {}


class PeerLine(Struct, frozen=True, kw_only=True):
    """Another node in the eyes of this one. Times are seconds since 1970."""

    live: bool = False
    """True while it is connected. Unsigned where a network tells it, so only a hint."""
    heard_s: float | None = None
    """Time of its last valid announcement; None before the first."""
    newest_round: int | None = None
    """Newest round of which a usable batch came; None before the first."""
    quarantined_until_s: float = 0.0
    """End of its quarantine; 0 if it is in none."""
    refused: dict[str, int] = {}
    """Messages refused under its name since this node started, by reason; with --web lines too."""
    line: StatusLine | None = None
    """Newest status line that its key has signed, where this node listens to them (--web)."""


class FolderStatus(Struct, frozen=True, kw_only=True):
    own: StatusLine
    peers: dict[str, PeerLine] = {}
