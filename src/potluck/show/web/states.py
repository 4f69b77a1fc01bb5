"""States of a run's nodes: from each one's own status.json, or from what others say of it.

A node that is here writes its status once a second, so silence of seconds means that it is gone or
hangs. Of one on another machine its peers' lines tell, while one of them is alive.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from msgspec import structs

from potluck.exchange.protocol.peers import silent_after_s
from potluck.reports.runs import RecipeRead
from potluck.reports.status import FolderStatus, PeerLine, StatusLine
from potluck.show.web.views import NodeView, State
from potluck.types import NODE_NAME

SILENT_S = silent_after_s(1)
"""Age of a node's status from which it counts as silent: it writes one every second."""
GONE_S = 600.0
"""Age from which it counts as stopped."""
MOST_NODES = 512
ENDS: Mapping[str, State] = {"ended": "ended", "stopped": "stopped"}
"""States by the last phase that a node tells."""
Lines = Mapping[str, PeerLine]
"""Lines of others about one node, by their names."""
How = tuple[State, str]
"""State of a node, and why."""


@dataclass(frozen=True, slots=True)
class Here:
    status: FolderStatus | None
    done: int
    """Rounds in its metrics.jsonl; a status may be a second older."""
    began_s: float | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    rounds: int
    max_staleness: int
    models: Mapping[str, str]
    now_s: float
    gather_s: float = 0.0
    """Time in which a node waits for the others before its first round."""
    furthest: int = -1
    """Rounds that the others have done; -1: no other is alive."""
    limit_s: float = 0.0
    """Age of what others say from which a node counts as silent."""


def facts_of(recipe: RecipeRead | None, now_s: float) -> Facts:
    """Return the facts of a run's recipe, which may not have been written yet."""
    if recipe is None:
        return Facts(0, 1, {}, now_s)
    # At the pace "free" rounds are each node's own: nobody is behind.
    staleness = recipe.rounds if recipe.pace == "free" else recipe.swarm.max_staleness
    models = {name: node.model for name, node in recipe.node.items()}
    return Facts(recipe.end, staleness, models, now_s, gather_s=recipe.swarm.gather_s)


def node_views(here: Mapping[str, Here], facts: Facts) -> list[NodeView]:
    """Return a line for each node: of the recipe first, then those that are here, then others."""
    fresh = {name for name, its in here.items() if _is_fresh(its, facts)}
    said: dict[str, dict[str, PeerLine]] = {}
    for reporter, its in here.items():
        for name, line in its.status.peers.items() if its.status else ():
            if NODE_NAME.fullmatch(name) and (name in said or len(said) < MOST_NODES):
                said.setdefault(name, {})[reporter] = line
    names = dict.fromkeys((*facts.models, *here, *sorted(said)))
    facts = replace(
        facts,
        furthest=max((_done(here[name]) for name in fresh), default=-1),
        # A status that tells of others may itself be as old as SILENT_S.
        limit_s=silent_after_s(len(names)) + SILENT_S,
    )
    found = []
    for name in names:
        lines, own = said.get(name, {}), here.get(name)
        heard = {by: line for by, line in lines.items() if by in fresh}
        if own and (own.status or not heard):
            found.append(_here(name, own, heard, facts))
        else:
            found.append(_elsewhere(name, lines, heard, facts))
    return found


def _is_fresh(its: Here, facts: Facts) -> bool:
    own = its.status.own if its.status else None
    return bool(own and own.phase not in ENDS and abs(facts.now_s - own.time_s) <= SILENT_S)


def _done(its: Here) -> int:
    return max(its.done, its.status.own.round if its.status else 0)


def _here(name: str, its: Here, heard: Lines, facts: Facts) -> NodeView:
    own, done = its.status.own if its.status else None, _done(its)
    how: How
    if own is None:
        how = ("ended", "") if 0 < facts.rounds <= done else ("unknown", "it has no status.json")
    elif own.phase in ENDS:
        how = ENDS[own.phase], ""
    else:
        how = _state(done, own.time_s, SILENT_S, heard, facts)
    view = _view(name, own, how, done, own.time_s if own else None, facts)
    # Until it has met the others, a node knows no peers.
    gathers = view.phase == "wait" and not done and its.status and not its.status.peers
    begins_s = its.began_s + facts.gather_s if gathers and its.began_s else None
    return structs.replace(view, begins_s=begins_s)


def _elsewhere(name: str, lines: Lines, heard: Lines, facts: Facts) -> NodeView:
    told = max((x.line for x in lines.values() if x.line), key=lambda x: x.time_s, default=None)
    # Its own line may be older than what it offers.
    rounds = [(x.line.round if x.line else 0, x.newest_round or 0) for x in lines.values()]
    done = max(map(max, rounds), default=0)
    heard_s = max((x.heard_s for x in lines.values() if x.heard_s is not None), default=None)
    how: How
    if told and told.phase in ENDS:
        how = ENDS[told.phase], ""
    elif heard_s is None and facts.furthest == 0:
        how = "awaited", "nothing was heard of it yet"
    elif not heard:
        how = "unknown", "no node that runs here tells of it"
    elif heard_s is None:
        how = "unknown", "nothing signed came of it yet"
    elif not any(line.live for line in heard.values()):
        state, why = _state(done, heard_s, -1.0, {}, facts)  # silent at once
        how = state, "it has left, or cannot be reached" if state == "silent" else why
    else:
        # Of one in quarantine nothing is read.
        last_s = facts.now_s if _quarantined_by(heard, facts) else heard_s
        how = _state(done, last_s, facts.limit_s, heard, facts)
    return _view(name, told, how, done, heard_s, facts)


def _state(done: int, heard_s: float, limit_s: float, heard: Lines, facts: Facts) -> How:
    """Return the state of a node that is silent ``limit_s`` after it was heard."""
    silent_s = abs(facts.now_s - heard_s)  # of the future where a clock was set back
    if silent_s > limit_s and 0 < facts.rounds <= done:
        return "ended", ""
    if silent_s > GONE_S:
        return "stopped", f"nothing was heard of it for more than {GONE_S / 60:.0f} minutes"
    if silent_s > limit_s:
        return "silent", f"nothing was heard of it for more than {limit_s:.0f} s"
    if by := _quarantined_by(heard, facts):
        return "quarantined", f"its messages are not read by {', '.join(by[:8])}"
    if facts.furthest - done > facts.max_staleness:
        return "recovering", f"it is {facts.furthest - done} rounds behind"
    return "training", ""


def _quarantined_by(heard: Lines, facts: Facts) -> list[str]:
    return [by for by, line in heard.items() if line.quarantined_until_s > facts.now_s]


def _view(
    name: str, told: StatusLine | None, how: How, done: int, heard_s: float | None, facts: Facts
) -> NodeView:
    state, why = how
    numbers = ["parameters", "version"]
    if state in ("training", "recovering", "quarantined"):
        numbers += ["phase", "done", "total"]
    return NodeView(
        name=name,
        model=(told.model if told else "") or facts.models.get(name, ""),
        state=state,
        why=why,
        heard_s=heard_s,
        round=done,
        **({each: getattr(told, each) for each in numbers} if told else {}),
    )
