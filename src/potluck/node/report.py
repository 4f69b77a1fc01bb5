"""The report of a round, part by part: rewards, what was learned, what was left out, traffic."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import stdev
from typing import Any

from torch import Tensor

from potluck.exchange import Round
from potluck.node.learning.learner import UpdateReport
from potluck.node.metrics import author_reports
from potluck.node.selection import Selection
from potluck.objective.habit import Habit
from potluck.objective.losses import k3
from potluck.reports import RewardReport, RoundReport, mean
from potluck.types import Group


def report_of(
    round: int,
    name: str,
    groups: Sequence[Group],
    update: UpdateReport | None,
    habits: Mapping[str, Habit],
    selection: Selection,
    arrived: Round,
) -> RoundReport:
    """Report what came in a round and what was learned; ``update`` is None if nothing came."""
    return RoundReport(
        round=round,
        **_of_rewards(groups, name),
        **(_of_update(update, groups, name, habits) if update else {"filtered_share": 0.0}),
        **_of_selection(selection),
        **of_traffic(arrived),
    )


def _of_rewards(groups: Sequence[Group], name: str) -> dict[str, Any]:
    rewards = [reward for group in groups for reward in group.rewards]
    pairs = [pair for group in groups for pair in zip(group.rows, group.rewards, strict=True)]
    own = [(row.completion, reward) for row, reward in pairs if row.completion.author == name]
    return {
        "completions": len(rewards),
        "reward_mean": mean(rewards),
        "own_reward_mean": mean(reward for _, reward in own),
        "rewards": _by_function(groups, name),
        "own_length_mean": mean(len(one.token_T) for one, _ in own),
        "own_cut_share": mean(one.end == "length" for one, _ in own),
        "groups_alike": mean(len({*group.rewards, *group.kept}) == 1 for group in groups),
    }


def _by_function(groups: Sequence[Group], name: str) -> dict[str, RewardReport]:
    own: dict[str, list[float]] = {}
    for group in groups:
        for function, values in group.parts.items():
            pairs = zip(group.rows, values, strict=True)
            mine = [value for row, value in pairs if row.completion.author == name]
            own.setdefault(function, []).extend(mine)
    return {n: RewardReport(mean(of), stdev(of) if len(of) > 1 else None) for n, of in own.items()}


def _of_update(
    update: UpdateReport, groups: Sequence[Group], name: str, habits: Mapping[str, Habit]
) -> dict[str, Any]:
    scored, batch = update.scored, update.scored.batch
    sources = author_reports(scored, [r for group in groups for r in group.rewards], name)
    for author, of_gradient in update.shares.items():
        sources[author] = replace(sources[author], gradient_share=of_gradient)
    for author, habit in habits.items():
        sources[author] = replace(
            sources[author],
            tested_habit=habit.phrases[0],
            habit_gain=habit.gain,
            habit_gain_error=habit.error,
        )
    trained, dropped = int((scored.kept_advantage_B != 0).sum()), len(scored.dropped)
    with_advantage = int((batch.advantage_B != 0).sum())
    own_B, kl = batch.by(name), None
    if scored.logp_reference_BT is not None:
        k3_BT = k3(scored.logp_start_BT, scored.logp_reference_BT, batch.mask_BT)
        kl = _token_mean(k3_BT, batch.mask_BT, own_B)
    return _same(update, "updates", "loss", "gradient_norm", "learning_rate") | {
        "entropy": _token_mean(
            -scored.logp_start_BT, batch.mask_BT, own_B & scored.metrics_BK[:, 0].isfinite()
        ),
        "kl": kl,
        "rows_trained": trained,
        "filtered_share": (with_advantage - trained - dropped) / max(1, with_advantage),
        "dropped_nonfinite": dropped,
        "sources": sources,
    }


def _token_mean(value_BT: Tensor, mask_BT: Tensor, of_B: Tensor) -> float | None:
    return value_BT[of_B][mask_BT[of_B]].mean().item() if of_B.any() else None


def _of_selection(selection: Selection) -> dict[str, Any]:
    unreadable: dict[str, dict[str, int]] = {}
    for (author, reason), count in sorted(selection.unreadable.items()):
        unreadable.setdefault(author, {})[reason] = count
    counts = "unasked", "too_few", "over_share", "over_intake", "late", "late_used"
    return _same(selection, *counts, "staleness", "joint_share") | {
        "unusable": sum(selection.unreadable.values()),
        "unreadable": unreadable,
    }


def of_traffic(arrived: Round) -> dict[str, Any]:
    """Return what a report has of the network, and of whom nothing came."""
    line = arrived.traffic
    return _same(line, "quarantined", "sent_bytes", "received_bytes") | {
        "missing": arrived.missing,
        "refused": dict(line.refused),
        "sent_bytes_per_token": line.sent_bytes / line.sent_tokens if line.sent_tokens else None,
    }


def _same(of: object, *fields: str) -> dict[str, Any]:
    return {field: getattr(of, field) for field in fields}
