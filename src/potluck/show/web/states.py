"""States of a run's nodes: from each one's own status.json, or from what others say of it.

A node that is here writes its status once a second, so silence of seconds means that it is gone or
hangs. Of one on another machine only its peers' lines are known, which tell as long as one of these
peers is alive, or those of an observer.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from statistics import median_low

from msgspec.structs import replace

from potluck.exchange.protocol.peers import silent_after_s
from potluck.reports.runs import RecipeRead
from potluck.reports.status import FolderStatus, PeerLine, StatusLine
from potluck.show.web.bounds import MOST_NODES
from potluck.show.web.views import Known, NodeView, State
from potluck.types import NODE_NAME

SILENT_S = silent_after_s(1)
"""Age of a node's status from which it counts as silent: it writes one every second."""
GONE_S = 600.0
"""Age from which it counts as stopped."""
OBSERVER = "(observer)"
ENDS: Mapping[str, State] = {"ended": "ended", "stopped": "stopped"}
"""States by the last phase that a node tells."""


@dataclass(frozen=True, slots=True)
class Here:
    """A node whose folder is here."""

    status: FolderStatus | None
    done: int
    """Rounds in its metrics.jsonl; a status may be a second older."""
    tokens_per_s: float | None = None
    sent_bytes: float | None = None
    received_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about the run that states depend on."""

    rounds: int
    max_staleness: int
    models: Mapping[str, str]
    """Model of each node of the recipe."""
    now_s: float
    observed: Mapping[str, PeerLine] = field(default_factory=dict)
    """Nodes that an observer sees."""
    roster: Collection[str] = ()
    """Nodes whose keys the observer knows."""


def facts_of(recipe: RecipeRead | None, now_s: float) -> Facts:
    """Return the facts of a run's recipe, which may not have been written yet."""
    if recipe is None:
        return Facts(0, 1, {}, now_s)
    # At the pace "free" rounds are each node's own: nobody is behind.
    staleness = recipe.rounds if recipe.pace == "free" else recipe.swarm.max_staleness
    models = {name: node.model for name, node in recipe.node.items()}
    return Facts(recipe.rounds, staleness, models, now_s)


def node_views(here: Mapping[str, Here], facts: Facts) -> list[NodeView]:
    """Return a line for each node: of the recipe first, then those that are here, then others."""
    fresh = {name: its.status for name, its in here.items() if its.status and _is_fresh(its, facts)}
    said: dict[str, list[tuple[str, PeerLine]]] = {}
    for reporter, its in here.items():
        for name, line in its.status.peers.items() if its.status else ():
            if NODE_NAME.fullmatch(name) and (name in said or len(said) < MOST_NODES):
                said.setdefault(name, []).append((reporter, line))
    rounds_done = [max(here[name].done, status.own.round) for name, status in fresh.items()]
    furthest = max(rounds_done, default=0)
    if facts.observed:
        said |= {name: [(OBSERVER, line)] for name, line in facts.observed.items()}
        met = [line for line in facts.observed.values() if line.live and line.heard_s is not None]
        # One that claims to be far ahead moves nobody.
        furthest = median_low(map(rounds_of, met)) if met else 0
    names = dict.fromkeys((*facts.models, *here, *sorted(facts.roster), *sorted(said)))
    limit_s = silent_after_s(len(names))
    found = []
    for name in names:
        lines = said.get(name, [])
        heard = [(by, line) for by, line in lines if by in fresh or by == OBSERVER]
        if name in here and (here[name].status or not heard):
            found.append(_here(name, here[name], heard, furthest, facts))
        else:
            found.append(_elsewhere(name, lines, heard, furthest, limit_s, facts))
    return found


def _is_fresh(its: Here, facts: Facts) -> bool:
    own = its.status.own if its.status else None
    return bool(own and own.phase not in ENDS and abs(facts.now_s - own.time_s) <= SILENT_S)


def _here(
    name: str, its: Here, heard: list[tuple[str, PeerLine]], furthest: int, facts: Facts
) -> NodeView:
    own = its.status.own if its.status else None
    done = max(its.done, own.round if own else 0)
    state, why = _state_here(own, done, heard, furthest, facts)
    view = view_of(name, own, state, why, facts.models.get(name, ""))
    return replace(
        view,
        refused=_refused(heard),
        heard_s=own.time_s if own else None,
        round=done,
        # A run of an older release has these numbers in its metrics alone.
        tokens_per_s=its.tokens_per_s if view.tokens_per_s is None else view.tokens_per_s,
        sent_bytes=_whole(its.sent_bytes),
        received_bytes=_whole(its.received_bytes),
    )


def view_of(
    name: str, told: StatusLine | None, state: State, why: str, model: str = ""
) -> NodeView:
    """Return what a node tells of itself; ``model``: its model where it tells none."""
    is_live = state in ("training", "recovering", "quarantined")
    return NodeView(
        name=name,
        model=(told.model if told else "") or model,
        parameters=(told.parameters or None) if told else None,
        version=told.version if told else "",
        state=state,
        why=why,
        phase=told.phase if told and is_live else "",
        done=told.done if told and is_live else 0,
        total=told.total if told and is_live else 0,
        tokens_per_s=told.tokens_per_s if told else None,
        sent_bytes=told.sent_bytes if told else None,
        received_bytes=told.received_bytes if told else None,
    )


def rounds_of(line: PeerLine) -> int:
    """Return the rounds that a node has done: its own line may be older than what it offers."""
    return max(line.line.round if line.line else 0, line.newest_round or 0)


def _state_here(
    own: StatusLine | None,
    done: int,
    heard: list[tuple[str, PeerLine]],
    furthest: int,
    facts: Facts,
) -> tuple[State, str]:
    all_done = 0 < facts.rounds <= done
    if own is None:
        return ("ended", "") if all_done else ("unknown", "it has no status.json")
    if own.phase in ENDS:
        return ENDS[own.phase], ""
    silent_s = abs(facts.now_s - own.time_s)  # of the future where a clock was set back
    if silent_s > SILENT_S and all_done:
        return "ended", ""
    if silent_s > GONE_S:
        return "stopped", f"nothing was heard of it for more than {GONE_S / 60:.0f} minutes"
    if silent_s > SILENT_S:
        return "silent", f"nothing was heard of it for more than {SILENT_S:.0f} s"
    return _trouble(heard, done, furthest, facts) or ("training", "")


def _trouble(
    heard: list[tuple[str, PeerLine]], done: int, furthest: int, facts: Facts
) -> tuple[State, str] | None:
    """Return the state of a living node for which it is not all well, and why; else None."""
    by = [reporter for reporter, line in heard if line.quarantined_until_s > facts.now_s]
    if by:
        return "quarantined", f"its messages are not read by {', '.join(by[:8])}"
    if furthest - done > facts.max_staleness:
        return "recovering", f"it is {furthest - done} rounds behind"
    return None


def _elsewhere(
    name: str,
    lines: list[tuple[str, PeerLine]],
    heard: list[tuple[str, PeerLine]],
    furthest: int,
    limit_s: float,
    facts: Facts,
) -> NodeView:
    told = max((x.line for _, x in lines if x.line), key=lambda x: x.time_s, default=None)
    done = max((rounds_of(line) for _, line in lines), default=0)
    state, why = _state_elsewhere(told, done, heard, furthest, limit_s, facts)
    heard_s = _last_heard_s(lines)
    # Whatever was heard of it was signed; of one that was never met nothing is known.
    known: Known = "signed" if told or heard_s is not None else "here"
    if name in facts.observed and name not in facts.roster:
        known = "unknown key"
    elif name in facts.observed and heard_s is None:
        known = "unsigned"
    return replace(
        view_of(name, told, state, why, facts.models.get(name, "")),
        refused=_refused(heard),
        known=known,
        heard_s=heard_s,
        round=done,
    )


def _state_elsewhere(
    told: StatusLine | None,
    done: int,
    heard: list[tuple[str, PeerLine]],
    furthest: int,
    limit_s: float,
    facts: Facts,
) -> tuple[State, str]:
    if told and told.phase in ENDS:
        return ENDS[told.phase], ""
    if not heard:
        return "unknown", "no node that runs here tells of it"
    heard_s, is_live = _last_heard_s(heard), any(line.live for _, line in heard)
    if heard_s is None:
        return "unknown", "nothing signed came of it yet"
    if not is_live and 0 < facts.rounds <= done:
        return "ended", ""
    trouble = _trouble(heard, done, furthest, facts) if is_live else None
    if trouble and trouble[0] == "quarantined":  # so nothing is heard of it
        return trouble
    silent_s = facts.now_s - heard_s
    if silent_s > GONE_S:
        return "stopped", f"nothing was heard of it for more than {GONE_S / 60:.0f} minutes"
    if not is_live:
        return "silent", "it has left, or cannot be reached"
    if silent_s > limit_s:
        return "silent", f"nothing was heard of it for more than {limit_s:.0f} s"
    return trouble or ("training", "")


def _last_heard_s(lines: list[tuple[str, PeerLine]]) -> float | None:
    return max((line.heard_s for _, line in lines if line.heard_s is not None), default=None)


def _refused(heard: list[tuple[str, PeerLine]]) -> dict[str, int]:
    counts = Counter[str]()
    for _, line in heard:
        counts.update({reason[:64]: n for reason, n in list(line.refused.items())[:16]})
    return dict(counts)


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)
