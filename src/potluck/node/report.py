"""What one round did: one line of ``metrics.jsonl``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from potluck.exchange import Round
from potluck.node.batch import Batch
from potluck.node.learner import Lesson
from potluck.node.sieve import Sifted
from potluck.node.statistics import SourceReport, source_reports


@dataclass(frozen=True, slots=True)
class RoundReport:
    """Shares are 0..1, times seconds, sizes bytes. Every number is this node's own view."""

    round: int
    reward_mean: float | None
    """Over all completions used, everyone's; None where there are none."""
    own_reward_mean: float | None
    """Over the completions that this node wrote."""
    loss: float
    """Of the round's last update."""
    gradient_norm: float
    """L2, of the last update, before clipping."""
    updates: int
    """Optimiser steps; 0 where no completion was left to learn from."""
    completions: int
    """B: all that the loss is the mean over."""
    rows_trained: int
    """Those with an advantage that nothing silenced."""
    filtered_share: float
    """Of the completions with an advantage, the share that the filter silenced."""
    dropped_nonfinite: int
    """Foreign completions that made a number non-finite."""
    unasked: int
    """Completions that were not asked of their author; left out."""
    unusable: int
    """Completions with ids that the tokenizer lacks, or longer than allowed; left out."""
    too_few: int
    """Completions that came without another one of their problem; left out."""
    over_share: int
    """Completions of strangers beyond their part of a batch; left out."""
    missing: tuple[str, ...]
    """Nodes of whom nothing came in time."""
    late: int
    """Completions of earlier rounds that came in this one."""
    late_used: int
    """Those among them that were learned from."""
    refused: Mapping[str, int]
    """Messages that could not be used, by the name they came under."""
    quarantined: tuple[str, ...]
    """Nodes that were not listened to."""
    sent_bytes: int
    """Of this node's batch, everything counted."""
    sent_bytes_per_token: float | None
    """None where it wrote nothing."""
    received_bytes: int
    """Of all batches that were fetched."""
    size_bytes: int
    """Of the round's file: what was learned from, in the wire format."""
    seconds: Mapping[str, float]
    """Per phase: write, exchange, learn."""
    sources: Mapping[str, SourceReport]
    """Per author."""


def report_of(
    round: int,
    name: str,
    batch: Batch | None,
    rewards: Sequence[float],
    lesson: Lesson | None,
    *,
    sifted: Sifted,
    arrived: Round,
    size_bytes: int,
    seconds: Mapping[str, float],
) -> RoundReport:
    """The report of a round; of one of which nothing came, ``batch`` and ``lesson`` are None."""
    authors = [c.author for c in batch.completions] if batch else []
    sources: dict[str, SourceReport] = {}
    silenced = with_advantage = 0
    if batch and lesson:
        sources = source_reports(
            authors,
            torch.tensor(rewards),
            batch.mask_BT.sum(dim=1),
            batch.advantage_B,
            lesson.heard_B,
            lesson.statistics_B8,
            lesson.dropped,
        )
        had_B = batch.advantage_B != 0
        with_advantage = int(had_B.sum())
        silenced = int((had_B & (lesson.heard_B == 0)).sum()) - len(lesson.dropped)
    line = arrived.traffic
    own = [reward for author, reward in zip(authors, rewards, strict=True) if author == name]
    return RoundReport(
        round=round,
        reward_mean=_mean(rewards),
        own_reward_mean=_mean(own),
        loss=lesson.loss if lesson else 0.0,
        gradient_norm=lesson.gradient_norm if lesson else 0.0,
        updates=lesson.updates if lesson else 0,
        completions=len(rewards),
        rows_trained=int((lesson.heard_B != 0).sum()) if lesson else 0,
        filtered_share=silenced / max(1, with_advantage),
        dropped_nonfinite=len(lesson.dropped) if lesson else 0,
        unasked=sifted.unasked,
        unusable=sifted.unusable,
        too_few=sifted.too_few,
        over_share=sifted.over_share,
        missing=arrived.missing,
        late=sum(map(len, arrived.late.values())),
        late_used=sifted.late_used,
        refused=dict(line.refused),
        quarantined=line.quarantined,
        sent_bytes=line.sent_bytes,
        sent_bytes_per_token=line.sent_bytes / line.sent_tokens if line.sent_tokens else None,
        received_bytes=line.received_bytes,
        size_bytes=size_bytes,
        seconds=seconds,
        sources=sources,
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
