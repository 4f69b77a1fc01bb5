"""The table [swarm]: how nodes meet that do not share a process, and whom they believe."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from potluck.config.kinds import Amount, Count

HERE = "_swarm"
"""In a run's folder: what its nodes on this machine need to meet. No node can have this name."""

Share = Annotated[float, Meta(ge=0, lt=1)]


class TlsConfig(Struct, frozen=True, kw_only=True):
    """Only who has a certificate of the swarm's own CA gets a connection (mutual TLS), and may
    speak under the name in it only (access control)."""

    folder: str
    """What ``potluck certificates`` wrote for this machine: ca.pem, NAME.pem, NAME.key."""


class SwarmConfig(Struct, frozen=True, kw_only=True):
    listen: tuple[str, ...] = ()
    """Where other nodes reach this one: ``tcp/0.0.0.0:7447``, or ``tls/...``. Empty: nowhere, as
    behind a NAT; then ``connect`` names routers (``potluck relay``)."""
    connect: tuple[str, ...] = ()
    """Other nodes or routers: ``tcp/HOST:PORT``, or ``tls/...``. Who listens names all others."""
    tls: TlsConfig | None = None
    key: str = ""
    """This node's secret key (``potluck keys``); empty: made in the node's folder at first."""
    roster: str = ""
    """A file that binds names to public keys. Those in it are members: they share out each
    round's problems. Empty: the nodes of the recipe are, and a name's first key is remembered."""
    open: bool = False
    """Whether strangers may take part: names that are no members. They write whole groups of
    problems drawn by their own name, and their part of a batch is bounded."""
    stranger_problems: Count = 2
    """Groups that a stranger may write in a round."""
    stranger_share: Share = 0.1
    """Of a batch, the part that one stranger may have at most."""
    strangers_share: Share = 0.3
    """Of a batch, the part that all strangers together may have at most."""
    codec: Literal["exact", "compact", "raw"] = "exact"
    """How this node's batches are written: docs/wire.md. "compact" rounds log-probabilities."""
    max_staleness: Amount = 1
    """Rounds for which a group that came late is still learned from; 0: never."""
    cohort: Count = 32
    """Nodes whose completions are fetched in a round where there are more than 64."""
    kept_rounds: Annotated[int, Meta(ge=1, le=64)] = 32
    """Rounds for which this node's batches stay available for those who were away."""
    gather_s: Annotated[float, Meta(ge=0)] = 60.0
    """Longest wait at the start until all members are there. Seconds."""
    quarantine_s: Annotated[float, Meta(ge=0)] = 60.0
    """How long a node is not listened to that keeps sending what is refused. Seconds; twice as long
    each time, an hour at most."""
