"""The report of a round, from its batch and its update."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import stdev

from potluck.exchange import Round
from potluck.node.learning.batch import Scored
from potluck.node.learning.learner import UpdateReport
from potluck.node.learning.read import UnreadReason
from potluck.node.metrics import author_reports
from potluck.node.selection import Selection
from potluck.objective.losses import k3
from potluck.reports import AuthorReport, RewardReport, RoundReport, mean
from potluck.types import Group


def report_of(
    round: int,
    name: str,
    groups: Sequence[Group],
    update: UpdateReport | None,
    *,
    selection: Selection,
    arrived: Round,
    size_bytes: int,
    seconds: Mapping[str, float],
    server_apart: float | None = None,
    server_apart_first: float | None = None,
) -> RoundReport:
    """Report a round; ``update`` is None if nothing came to learn from."""
    rewards = [reward for group in groups for reward in group.rewards]
    pairs = [pair for group in groups for pair in zip(group.rows, group.rewards, strict=True)]
    own = [(row.completion, reward) for row, reward in pairs if row.completion.author == name]
    sources: dict[str, AuthorReport] = {}
    trained = with_advantage = dropped = 0
    if update:
        scored = update.scored
        sources = author_reports(scored, rewards, name)
        for author, of_gradient in update.shares.items():
            sources[author] = replace(sources[author], gradient_share=of_gradient)
        trained = int((scored.kept_advantage_B != 0).sum())
        with_advantage = int((scored.batch.advantage_B != 0).sum())
        dropped = len(scored.dropped)
    line = arrived.traffic
    return RoundReport(
        round=round,
        reward_mean=mean(rewards),
        own_reward_mean=mean(reward for _, reward in own),
        rewards=_by_function(groups, name),
        own_length_mean=mean(len(one.token_T) for one, _ in own),
        own_cut_share=mean(one.end == "length" for one, _ in own),
        groups_alike=mean(len({*group.rewards, *group.kept}) == 1 for group in groups),
        entropy=_entropy(update.scored, name) if update else None,
        kl=_kl(update.scored, name) if update else None,
        learning_rate=update.learning_rate if update else None,
        loss=update.loss if update else 0.0,
        gradient_norm=update.gradient_norm if update else 0.0,
        updates=update.updates if update else 0,
        completions=len(rewards),
        rows_trained=trained,
        filtered_share=(with_advantage - trained - dropped) / max(1, with_advantage),
        dropped_nonfinite=dropped,
        unasked=selection.unasked,
        unusable=sum(selection.unreadable.values()),
        unreadable=_by_author(selection.unreadable),
        too_few=selection.too_few,
        over_share=selection.over_share,
        over_intake=selection.over_intake,
        staleness=selection.staleness,
        joint_share=selection.joint_share,
        missing=arrived.missing,
        late=selection.late,
        late_used=selection.late_used,
        refused=dict(line.refused),
        quarantined=line.quarantined,
        sent_bytes=line.sent_bytes,
        sent_bytes_per_token=line.sent_bytes / line.sent_tokens if line.sent_tokens else None,
        received_bytes=line.received_bytes,
        size_bytes=size_bytes,
        server_apart=server_apart,
        server_apart_first=server_apart_first,
        seconds=seconds,
        sources=sources,
    )


def _by_author(unreadable: Mapping[tuple[str, UnreadReason], int]) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = {}
    for (author, reason), count in sorted(unreadable.items()):
        counts.setdefault(author, {})[reason] = count
    return counts


def _entropy(scored: Scored, name: str) -> float | None:
    read_B = scored.batch.by(name) & scored.metrics_BK[:, 0].isfinite()
    surprise = -scored.logp_start_BT[read_B][scored.batch.mask_BT[read_B]]
    return surprise.mean().item() if len(surprise) else None


def _by_function(groups: Sequence[Group], name: str) -> dict[str, RewardReport]:
    own: dict[str, list[float]] = {}
    for group in groups:
        for function, values in group.parts.items():
            pairs = zip(group.rows, values, strict=True)
            mine = [value for row, value in pairs if row.completion.author == name]
            own.setdefault(function, []).extend(mine)
    return {
        function: RewardReport(mean(values), stdev(values) if len(values) > 1 else None)
        for function, values in own.items()
    }


def _kl(scored: Scored, name: str) -> float | None:
    own_B, batch = scored.batch.by(name), scored.batch
    if scored.logp_reference_BT is None or not own_B.any():
        return None
    k3_BT = k3(scored.logp_start_BT, scored.logp_reference_BT, batch.mask_BT)
    return k3_BT[own_B][batch.mask_BT[own_B]].mean().item()
