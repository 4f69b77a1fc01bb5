"""docs/results.md: what sharing costs, and how far the seeds lie apart."""

from collections.abc import Sequence

from potluck.reproduce.judge.price import Cost, Reached, cost_of
from potluck.reproduce.judge.sharing import SHARED, TO_TELL, spread_of
from potluck.reproduce.page.finished import Finished
from potluck.reproduce.page.markdown import (
    NOTHING,
    accuracy,
    amount_within,
    cell,
    counted,
    table,
)
from potluck.reproduce.page.pays import shared_pairs, title_of

SAME_QUALITY_HEAD = ("pair", "F-TIS over", "tokens of all", "wall time of all", "seeds")


def what_it_costs(there: Finished) -> str:
    """Ratios over the whole run, up to one quality, and rounds up to it."""
    costs = [cost_of(there.suite, there.scale, p, there.results) for p in shared_pairs(there)]
    whole = [
        [
            title_of(there, cost.pair),
            f"`{model}`",
            amount_within(tokens, 2),
            amount_within(cost.wall, 2) if at == 0 else "",
        ]
        for cost in costs
        for at, (model, tokens) in enumerate(cost.tokens.items())
    ]
    same = [
        [
            title_of(there, cost.pair),
            quality.than,
            amount_within(quality.tokens, 2),
            amount_within(quality.wall, 2),
            f"{quality.tokens.n if quality.tokens else '-'} of {quality.seeds}",
            str(quality.never),
            str(quality.control_never),
        ]
        for cost in costs
        for quality in cost.same_quality
    ]
    return "\n\n".join(
        [
            _from_to(costs),
            "Ratios: 1 is what the models pay when each is trained alone, one after the other. All "
            "models of a cell take turns in one thread, so wall time is work: on a machine each, "
            "nodes write at the same time. Over all rounds:",
            table(["pair", "model", "tokens that it writes", "wall time of all models"], whole),
            "Up to the same quality, 90 % of the greedy accuracy that alone ends at. Together, all "
            "go on until the last model has it; each by itself stops when it has it. Seeds in "
            "which a model never has it, or has it at the start, have no ratio:",
            table([*SAME_QUALITY_HEAD, "never with F-TIS", "never by itself"], same),
            "Rounds until then, in the mean over the seeds that get there:",
            _rounds_table(there, costs),
        ]
    )


def _from_to(costs: Sequence[Cost]) -> str:
    """The means of the ratios in one sentence."""
    tokens = [t.mean for cost in costs for t in cost.tokens.values() if t]
    wall = [cost.wall.mean for cost in costs if cost.wall]
    if not tokens or not wall:
        return "No pair has two seeds with F-TIS and alone yet."
    return (
        f"With F-TIS a model writes {min(tokens):.2f} to {max(tokens):.2f} times the tokens that "
        f"it writes alone, and all models of a pair together take {min(wall):.2f} to "
        f"{max(wall):.2f} times the wall time."
    )


def _rounds_table(there: Finished, costs: Sequence[Cost]) -> str:
    rows = []
    for cost in costs:
        for model in cost.tokens:
            found = [reached for reached in cost.reached if reached.model == model]
            if found:
                level = accuracy(found[0].level)
                by_setting = {reached.setting: _reached(reached) for reached in found}
                full, shared = by_setting.get("alone", NOTHING), by_setting.get(SHARED, NOTHING)
                fair = [t for s, t in by_setting.items() if s not in ("alone", SHARED)]
                row = [title_of(there, cost.pair), f"`{model}`", level]
                rows.append([*row, full, *(fair or [NOTHING]), shared])
    return table(["pair", "model", "level", "alone", "half or quarter", "F-TIS"], rows)


def _reached(reached: Reached) -> str:
    if not reached.seeds:
        return NOTHING
    never = f" (never in {reached.never} of {reached.seeds})" if reached.never else ""
    return f"{amount_within(reached.rounds, 1)}{never}"


def spread(there: Finished) -> str:
    """Of alone, over its seeds."""
    found = spread_of(there.suite, there.scale, there.results)
    families, asked = there.suite.scales[there.scale].family, there.suite.scales[there.scale].seeds
    rows = [
        [
            cell(families[s.family].title),
            f"`{s.model}`",
            str(s.seeds),
            accuracy(s.deviation),
            f"+-{accuracy(s.half_width)}",
            str(s.needed),
        ]
        for s in found
    ]
    enough = sum(s.half_width <= TO_TELL for s in found)
    most = max((s.needed for s in found), default=asked)
    tell = TO_TELL
    verdict = (
        f"So a difference of {tell} can be told with {counted(asked, 'seed')} for every model."
        if enough == len(found)
        else f"So a difference of {tell} can be told with {counted(asked, 'seed')} for {enough} of "
        f"{counted(len(found), 'model')}; for all of them it would take {counted(most, 'seed')}."
    )
    head = ["task", "model", "seeds", "standard deviation", f"half width, {asked} seeds"]
    return "\n\n".join(
        [
            "How far the seeds of alone lie apart at the end, in greedy accuracy. The half width "
            "is that of the 95 % interval of a difference between two settings whose seeds have "
            "nothing in common; those on this page are paired by seed, and mostly narrower.",
            table([*head, f"seeds to tell {tell}"], rows),
            verdict,
        ]
    )
