"""The authors that a node trusts: see ``objective/trust.py`` for what that changes."""

from collections.abc import Callable, Collection
from pathlib import Path

from potluck.builder.exchange import members_of, swarm_roster
from potluck.config import RunConfig


def trusts_of(
    config: RunConfig, folder: Path, name: str, here: Collection[str]
) -> Callable[[str], bool]:
    """Return the function that tells of an author if node ``name`` trusts it; ``here`` are the
    nodes of this process, which one person started."""
    match config.objective.trust:
        case "everybody":
            return lambda author: True
        case "nobody":
            return lambda author: author == name
    trusted = frozenset([*here, *swarm_roster(config, folder)])
    return lambda author: author in trusted


def notes_on_trust(config: RunConfig, folder: Path, here: Collection[str]) -> list[str]:
    """Return a line that names the members which the nodes of this process do not trust, if any."""
    first = min(here)
    trusts = trusts_of(config, folder, first, here)
    if not (others := [name for name in members_of(config) if name != first and not trusts(name)]):
        return []
    asked = config.objective.trust == "nobody"
    why = "[objective] trust is 'nobody'" if asked else "no [swarm] roster has their keys"
    way_out = (
        "docs/trust.md says what that is for"
        if asked
        else ("name a roster, or set [objective] trust = 'everybody' among friends (docs/trust.md)")
    )
    return [
        f"not trusted: {', '.join(others)}, as {why}. Of what they write only likely successes "
        f"teach, and no log-probability of theirs is read; {way_out}"
    ]
