"""The authors that a node trusts: see ``objective/trust.py`` for what that changes."""

from collections.abc import Callable, Collection
from pathlib import Path

from potluck.builder.exchange import members_of, swarm_roster
from potluck.config import ConfigError, RunConfig


def trusts_of(
    config: RunConfig, folder: Path, name: str, here: Collection[str]
) -> Callable[[str], bool]:
    """Make the function that tells of an author if node ``name`` trusts it; ``here`` are the
    nodes of this process, which one person started."""
    match config.objective.trust:
        case "everybody":
            return lambda author: True
        case "nobody":
            return lambda author: author == name
    trusted = frozenset([*here, *swarm_roster(config, folder)])
    return lambda author: author in trusted


def require_baseline(config: RunConfig, folder: Path, here: Collection[str]) -> None:
    """Raise ConfigError if a node of this process would have nothing to compare its completions
    with: of authors that it does not trust none counts."""
    weights = {name: config.node[name].weight for name in members_of(config)}
    for name in weights.keys() & {*here} if config.plan == "horizontal" else ():
        trusts = trusts_of(config, folder, name, here)
        trusted = sum(weight for author, weight in weights.items() if trusts(author))
        rows = int(config.group_size * trusted / sum(weights.values()) + 1e-9)
        if config.pace == "together" and rows < 2:
            raise ConfigError(
                f"plan 'horizontal' gives the authors that {name!r} trusts {rows} of the "
                f"{config.group_size} completions of a problem, and one has nothing to be compared "
                f"with; set plan = 'vertical', raise group_size, name them in a [swarm] roster, or "
                f"set [objective] trust = 'everybody'"
            )


def notes_on_trust(config: RunConfig, folder: Path, here: Collection[str]) -> list[str]:
    """Name the members which the nodes of this process do not trust, in a line, if any."""
    first = min(here)
    trusts = trusts_of(config, folder, first, here)
    if not (others := [name for name in members_of(config) if name != first and not trusts(name)]):
        return []
    asked = config.objective.trust == "nobody"
    why = "[objective] trust is 'nobody'" if asked else "no [swarm] roster has their keys"
    way_out = "name a roster, or set [objective] trust = 'everybody' among friends (docs/trust.md)"
    way_out = "docs/trust.md says what that is for" if asked else way_out
    return [
        f"not trusted: {', '.join(others)}, as {why}. Only right and likely answers of theirs "
        f"teach, and no log-probability that they claim is read; {way_out}"
    ]
