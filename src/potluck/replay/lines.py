"""What a replay measured: a line of ``replay.jsonl`` a round, and a table of their means."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from potluck.dashboard.comparison import label
from potluck.dashboard.text import decimal, mean, percent

LEGEND = """\
the mean over all rounds, and the last one
cosine: of the method's gradient with that of the model's own fresh completions
ceiling: of two such on-policy gradients with each other; noise keeps it below 1
sample size: effective, 1 where all tokens weigh alike; ln ratio: nats a token"""


@dataclass(frozen=True, slots=True)
class Line:
    """One node, method and round. None: nothing to measure."""

    node: str
    method: str
    round: int
    cosine: float | None
    """Of the gradient of the round's first update with the on-policy gradient, -1..1: the mean
    over the two estimates of the latter."""
    ceiling: float | None
    """Of those two estimates with each other, -1..1."""
    effective_sample_size: float | None
    """(sum w)^2 / (n sum w^2) over all n tokens with an advantage, everyone's, 0..1."""
    log_ratio_mean: float | None
    """ln pi_start - ln pi_gen over the same tokens, nats."""
    filtered_share: float
    """Of the completions with an advantage, the share that the filter silenced, 0..1."""
    own_reward_mean: float | None
    """Of the fresh completions: what the model earns before the round's updates, sampled."""
    gradient_norm: float
    """L2, of the round's last update, before clipping."""
    updates: int
    validation: float | None
    """Greedy accuracy after the round, 0..1, where the run evaluated too."""
    sources: Mapping[str, Mapping[str, Any]]
    """Of each author, as in metrics.jsonl."""


def by_curve(lines: Iterable[Line]) -> dict[tuple[str, str], list[Line]]:
    """The lines of each (node, method), in the order in which they came."""
    found: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        found.setdefault((line.node, line.method), []).append(line)
    return found


def table(lines: Sequence[Line], console: Console) -> Table:
    """Each node's methods below each other: the mean over the rounds, and the last one."""
    made = Table(box=box.SIMPLE_HEAD if console.is_terminal else None, pad_edge=False)
    made.add_column("node", overflow="fold")
    for name in ("method", "rounds"):
        made.add_column(name, no_wrap=True)
    for name in ("cosine", "ceiling", "sample size", "ln ratio", "filtered", "greedy"):
        made.add_column(name, justify="right")
    for (node, method), told in by_curve(lines).items():
        first, last = told[0].round + 1, told[-1].round + 1
        made.add_row(Text(node), label(method), f"{first}-{last}", *_means(told))
        made.add_row("", "", str(last), *_means(told[-1:]))
    return made


def _means(told: Sequence[Line]) -> list[str]:
    return [
        decimal(mean(line.cosine for line in told)),
        decimal(mean(line.ceiling for line in told)),
        decimal(mean(line.effective_sample_size for line in told)),
        decimal(mean(line.log_ratio_mean for line in told)),
        percent(mean(line.filtered_share for line in told)),
        decimal(mean(line.validation for line in told)),
    ]
