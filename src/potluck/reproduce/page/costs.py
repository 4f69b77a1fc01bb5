"""docs/results.md: what sharing costs, and how far the seeds lie apart."""

from collections.abc import Sequence

from potluck.reproduce.judge.price import Cost, Reached, cost_of
from potluck.reproduce.judge.sharing import POWER, SHARED, TO_TELL, Spread, spread_of
from potluck.reproduce.page.finished import Finished
from potluck.reproduce.page.markdown import (
    NOTHING,
    accuracy,
    amount_within,
    cell,
    counted,
    listed,
    table,
)
from potluck.reproduce.page.pays import shared_pairs, title_of

WHOLE_HEAD = ("pair", "model", "tokens that it writes", "core time of all")
SAME_QUALITY_HEAD = (
    "pair",
    "F-TIS over",
    "tokens of all",
    "core time of all",
    "seeds with a ratio",
)


def what_it_costs(there: Finished) -> str:
    """Ratios over the whole run, up to one quality, and rounds up to it."""
    costs = [cost_of(there.suite, there.scale, p, there.results) for p in shared_pairs(there)]
    whole = [
        [
            title_of(there, cost.pair),
            f"`{model}`",
            amount_within(tokens, 2),
            amount_within(cost.core, 2) if at == 0 else "",
        ]
        for cost in costs
        for at, (model, tokens) in enumerate(cost.tokens.items())
    ]
    same = [
        [
            title_of(there, cost.pair),
            quality.than,
            amount_within(quality.tokens, 2),
            amount_within(quality.core, 2),
            f"{quality.used} of {quality.seeds}",
            str(quality.never),
            str(quality.control_never),
        ]
        for cost in costs
        for quality in cost.same_quality
    ]
    return "\n\n".join(
        [
            _from_to(costs),
            "Ratios: 1 is what the models pay when each is trained alone, one after the other. "
            "Core time: what one core worked, evaluations and the start included (alone the start "
            "is paid once for each model). On an idle core that is the wall time of training them "
            "one after the other; the wall seconds of these cells were taken while several ran "
            "side by side and are not compared. Nodes with a machine each would work at the same "
            "time. Over all rounds:",
            table(WHOLE_HEAD, whole),
            "Up to the same quality, 90 % of the greedy accuracy that alone ends at. Together, all "
            "go on until the last model has it; each by itself stops when it has it. A seed in "
            "which a model never has it, or has it at the start, has no ratio. Then there is no "
            "mean, either: it would be that of the seeds that went well. The last two columns "
            "count the seeds in which a model never has it. A cell's core time is shared out over "
            "its rounds and models as its wall seconds were:",
            table([*SAME_QUALITY_HEAD, "never with F-TIS", "never by itself"], same),
            "Rounds until then, in the mean over the seeds, if all get there:",
            _rounds_table(there, costs),
        ]
    )


def _from_to(costs: Sequence[Cost]) -> str:
    """The means of the ratios in one sentence."""
    tokens = [t.mean for cost in costs for t in cost.tokens.values() if t]
    core = [cost.core.mean for cost in costs if cost.core]
    if not tokens or not core:
        return "No pair has two seeds with F-TIS and alone yet."
    return (
        f"With F-TIS a model writes {min(tokens):.2f} to {max(tokens):.2f} times the tokens that "
        f"it writes alone, and all models of a pair together take {min(core):.2f} to "
        f"{max(core):.2f} times the core time."
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
                fewer = [t for s, t in by_setting.items() if s not in ("alone", SHARED)]
                row = [title_of(there, cost.pair), f"`{model}`", level]
                rows.append([*row, full, *(fewer or [NOTHING]), shared])
    return table(["pair", "model", "level", "alone", "half or quarter", "F-TIS"], rows)


def _reached(reached: Reached) -> str:
    if reached.never:
        return f"never in {reached.never} of {reached.seeds}"
    return amount_within(reached.rounds, 1)


SPREAD_HEAD = (
    "task", "model", "seeds", "alone", "half", "F-TIS minus alone, paired",
    "seeds to tell, by alone", "seeds to tell, by the pairs",
)  # fmt: skip


def spread(there: Finished) -> str:
    """Standard deviations over the seeds, and how many seeds they ask for."""
    found = spread_of(there.suite, there.scale, there.results)
    families = there.suite.scales[there.scale].family
    rows = [
        [
            cell(families[s.family].title),
            f"`{s.model}`",
            str(s.seeds),
            accuracy(s.alone),
            NOTHING if s.half is None else accuracy(s.half),
            NOTHING if s.paired is None else accuracy(s.paired),
            str(s.needed),
            str(s.needed_paired or NOTHING),
        ]
        for s in found
    ]
    return "\n\n".join(
        [
            "Standard deviations of greedy accuracy at the end, over the seeds: of alone, of half, "
            "and of the differences F-TIS minus alone seed by seed (the largest of the pairs that "
            f"the model is in). *Seeds to tell*: with so many a true difference of {TO_TELL} is "
            f"told, its 95 % interval leaves out 0, with a probability of {POWER * 100:.0f} %; by "
            "the spread of alone, as if both sides varied like it and independently, and by that "
            "of the paired differences, which are what this page compares. It is the usual "
            "approximation, and the true standard deviation is anything from .6 to 2.9 times that "
            "of 5 seeds (95 %).",
            table(SPREAD_HEAD, rows),
            _enough(there, found),
        ]
    )


def _enough(there: Finished, found: Sequence[Spread]) -> str:
    """For how many models the seeds suffice, and what the others would take."""
    asked, families = there.suite.scales[there.scale].seeds, there.suite.scales[there.scale].family
    known = [(s, s.needed_paired) for s in found if s.needed_paired is not None]
    by_alone = sum(s.needed <= asked for s in found)
    more = sorted((n, families[s.family].title, s.model) for s, n in known if n > asked)
    others = [f"{n} (`{model}`, {cell(title)})" for n, title, model in more]
    return (
        f"So by the paired differences {counted(asked, 'seed')} suffice to tell a difference of "
        f"{TO_TELL} for {len(known) - len(more)} of {counted(len(known), 'model')}"
        + (f"; the others would take {listed(others)}" if others else "")
        + f". By the spread of alone they suffice for {by_alone} of {len(found)}."
    )
