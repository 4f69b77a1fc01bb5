"""The report of a round, part by part: rewards, what was learned, what was left out, traffic; and
its completions for people to look at, some of them token by token.

The statistics of each author are measured on log-probabilities that scoring computes anyway, so
they cover the completions that had an advantage (``with_advantage`` says how many) and were read,
before the filter. They cost next to nothing (``benchmarks/overhead.py``).
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, zip_longest
from statistics import stdev
from typing import Any

import torch
from msgspec import json
from torch import Tensor

from potluck.episode import transcript, turns_in
from potluck.exchange import Round
from potluck.files import both_ends
from potluck.node.learning.base import Learning, UpdateReport
from potluck.node.learning.batch import Scored
from potluck.node.learning.score import METRICS, candidates
from potluck.node.selection import BY_REPLAY, Selection
from potluck.objective.habit import Habit
from potluck.objective.losses import k3
from potluck.reports import BLOCKING_WEIGHT, AuthorReport, RewardReport, RoundReport, mean
from potluck.reports.tokens import Recorded, columns_of
from potluck.right import TASK, is_binary
from potluck.types import Completion, Episode, Group

QUESTION, TOKENS = 300, 1024
"""Characters of a prompt, and tokens of a completion, that are written."""


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
    learned: dict[str, Any] = {"filtered_share": 0.0}
    if update:
        learned = _of_update(update, name)
        learned["sources"] = _sources(update, groups, habits, selection)
    return RoundReport(
        round=round,
        **_of_rewards(groups, name),
        **learned,
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
        "partial": not is_binary(rewards),
        "own_length_mean": mean(len(one.token_T) for one, _ in own),
        "own_cut_share": mean(one.end != "stop" for one, _ in own),
        "groups_alike": mean(len({*group.rewards, *group.past_rewards}) == 1 for group in groups),
    }


def _by_function(groups: Sequence[Group], name: str) -> dict[str, RewardReport]:
    own: dict[str, list[float]] = {}
    binary: dict[str, bool] = {}
    for group in groups:
        for function, values in group.parts.items():
            pairs = zip(group.rows, values, strict=True)
            mine = [value for row, value in pairs if row.completion.author == name]
            own.setdefault(function, []).extend(mine)
            binary[function] = binary.get(function, True) and is_binary(values)
    return {
        function: RewardReport(
            mean=mean(its), std=stdev(its) if len(its) > 1 else None, binary=binary[function]
        )
        for function, its in own.items()
    }


def _of_update(update: UpdateReport, name: str) -> dict[str, Any]:
    scored, batch = update.scored, update.scored.batch
    trained, dropped = int((scored.kept_advantage_B != 0).sum()), len(scored.dropped)
    with_advantage = int((batch.advantage_B != 0).sum())
    own_B, kl = batch.by(name), None
    if scored.logp_reference_BT is not None:
        k3_BT = k3(scored.logp_start_BT, scored.logp_reference_BT, batch.mask_BT)
        kl = _token_mean(k3_BT, batch.mask_BT, own_B)
    return _same(update, "updates", "loss", "gradient_norm", "learning_rate") | {
        "entropy": _token_mean(-scored.logp_start_BT, batch.mask_BT, own_B & scored.read_B),
        "kl": kl,
        "rows_trained": trained,
        "filtered_share": (with_advantage - trained - dropped) / max(1, with_advantage),
        "dropped_nonfinite": dropped,
    }


def _sources(
    update: UpdateReport,
    groups: Sequence[Group],
    habits: Mapping[str, Habit],
    selection: Selection,
) -> dict[str, AuthorReport]:
    more = defaultdict[str, dict[str, Any]](dict, _of_episodes(groups, selection))
    for author, share in update.shares.items():
        more[author]["gradient_share"] = share
    for author, habit in habits.items():
        if habit.is_untested:
            continue
        more[author] |= {"tested_habit": habit.phrases[0]}
        more[author] |= {"habit_gain": habit.gain, "habit_gain_error": habit.error}
    sources = author_reports(update.scored, [r for group in groups for r in group.rewards])
    return {author: replace(its, **more[author]) for author, its in sources.items()}


def _of_episodes(groups: Sequence[Group], selection: Selection) -> dict[str, dict[str, Any]]:
    """Return the numbers of each author's episodes; of nobody where there is no environment."""
    written: dict[str, list[tuple[Completion, Episode]]] = {}
    for row in (row for group in groups for row in group.rows):
        if row.episode:
            author, both = row.completion.author, (row.completion, row.episode)
            written.setdefault(author, []).append(both)
    found: dict[str, dict[str, Any]] = {}
    for author, its in written.items():
        completions, episodes = zip(*its, strict=True)
        calls = sum(each.calls for each in episodes)
        refused = sum(selection.unreadable.get((author, reason), 0) for reason in BY_REPLAY)
        found[author] = {
            "turns_mean": mean(len(c.turns) for c in completions),
            "calls_mean": calls / len(episodes),
            "call_error_share": _ratio(sum(each.errors for each in episodes), calls),
            "cut_share": mean(c.end != "stop" for c in completions),
            "replay_refused_share": refused / (refused + len(completions)),
        }
    return found


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


def author_reports(
    scored: Scored, rewards: Sequence[float], *, authors: Sequence[str] | None = None
) -> dict[str, AuthorReport]:
    """Sum the metrics up by author, or by other ``authors`` of the rows, sorted by name.
    ``rewards`` are of all rows of the batch, in its order."""
    batch, kept_B, advantage_B = scored.batch, scored.kept_advantage_B, scored.batch.advantage_B
    authors = authors or [c.author for c in batch.completions]
    reward_B, length_B = torch.tensor(rewards), batch.mask_BT.sum(dim=1)
    intact_B = torch.ones(len(authors), dtype=torch.bool)
    intact_B[list(scored.dropped)] = False
    columns = dict(zip(METRICS, scored.metrics_BK.unbind(dim=1), strict=True))
    filtered_B = (kept_B == 0).double()
    blocked_B = (columns["weight_min"] < BLOCKING_WEIGHT).double()
    reports = {}
    for author in sorted(set(authors)):
        of_B = torch.tensor([name == author for name in authors])
        with_B = of_B & (advantage_B != 0)
        measured_B = with_B & scored.read_B
        positive_B = measured_B & (advantage_B > 0)
        silenced_B = of_B & intact_B & batch.silenced_B & (advantage_B > 0)
        met_B = positive_B | silenced_B
        total = {name: float(column_B[measured_B].sum()) for name, column_B in columns.items()}
        reports[author] = AuthorReport(
            completions=int(of_B.sum()),
            tokens=int(length_B[of_B].sum()),
            reward_mean=float(reward_B[of_B].mean()),
            with_advantage=int(with_B.sum()),
            rows_trained=int((of_B & (kept_B != 0)).sum()),
            log_ratio_mean=_ratio(total["ratio_sum"], total["tokens"]),
            k1=_mean(columns["k1"], measured_B),
            k3=_mean(columns["k3"], measured_B),
            capped_share=_ratio(total["capped"], total["tokens"]),
            filtered_share_negative=_mean(filtered_B, of_B & intact_B & (advantage_B < 0)),
            # `**` raises where it overflows; `*` gives inf, which _finite knows.
            effective_sample_size=_ratio(
                total["weight"] * total["weight"], total["tokens"] * total["weight_square"]
            ),
            k1_positive=_mean(columns["k1"], positive_B),
            likelihood_positive=_mean(columns["likelihood"], positive_B),
            bits_per_byte=_ratio(
                total["surprise"] / math.log(2), float(batch.bytes_B[measured_B].sum())
            ),
            success_weight=_ratio(float(kept_B[met_B].sum()), float(advantage_B[met_B].sum())),
            silenced_share=_mean(silenced_B.double(), met_B),
            blocked_share=_mean(blocked_B, positive_B),
        )
    return reports


def _mean(column_B: Tensor, of_B: Tensor) -> float | None:
    return _finite(column_B[of_B].mean().item()) if of_B.any() else None


def _ratio(above: float, below: float) -> float | None:
    return _finite(above / below) if below else None


def _finite(value: float) -> float | None:
    """Return None for an infinity: JSON has none, and a statistic that overflows says nothing."""
    return value if math.isfinite(value) else None


def lines_of(round: int, group: Group) -> list[dict[str, Any]]:
    """Make the lines of a group in completions.jsonl."""
    lines = []
    for at, (row, reward) in enumerate(zip(group.rows, group.rewards, strict=True)):
        c, paid = row.completion, {"reward": reward}
        numbers = {name: values[at] for name, values in group.parts.items()}
        if numbers != {TASK: reward}:  # else they say the same
            paid |= {f"reward/{name}": number for name, number in numbers.items()}
        turns = turns_in(c.text or "") or ()
        said = {"turns": transcript(turns, row.episode)} if row.episode else {}
        origin = {"problem": c.problem_id, "author": c.author, "index": c.index}
        lines.append({"round": round, **origin, **paid, "end": c.end, "text": row.text, **said})
    return lines


def sample(
    round: int, groups: Sequence[Group], scored: Scored, learner: Learning, *, size_bytes: float
) -> list[Recorded]:
    """Return the completions of ``groups``, packed and scored, whose lines fit ``size_bytes``: so
    long runs stay as large as they were. Of each author, of each outcome, in turn, first the one
    with the most surprising token."""
    rows = [(g, row, reward) for g in groups for row, reward in zip(g.rows, g.rewards, strict=True)]
    likelihood_B = scored.metrics_BK[:, METRICS.index("likelihood")]
    advantage_B, kept_B = scored.batch.advantage_B, scored.kept_advantage_B
    candidate_B = candidates(scored.batch, learner.name, learner.objective)
    number_BT = _numbers(scored)
    surprise = number_BT.abs().nan_to_num(0.0).amax(dim=1).tolist()
    outcomes = defaultdict[tuple[str, bool, bool], list[int]](list)
    for at in sorted(range(len(rows)), key=lambda at: -surprise[at]):
        author, kept = rows[at][1].completion.author, bool(kept_B[at])
        outcomes[author, kept, bool(advantage_B[at] > 0)].append(at)
    keys = sorted(outcomes)
    first = round % len(keys)  # where there is room for one a round, each has its turn
    turns = chain.from_iterable(
        zip_longest(*(outcomes[key] for key in keys[first:] + keys[:first]))
    )
    lines = []
    for at in (at for at in turns if at is not None):
        group, row, reward = rows[at]
        ids, numbers = row.token_T[:TOKENS].tolist(), number_BT[at, :TOKENS].tolist()
        numbers = [] if math.isnan(numbers[0]) else numbers[: len(ids)]
        line = Recorded(
            round=round,
            problem=row.completion.problem_id,
            author=row.completion.author,
            index=row.completion.index,
            advantage=_rounded(advantage_B[at]),
            kept=_rounded(kept_B[at]),
            reward=_rounded(reward),
            likelihood=_rounded(likelihood_B[at]) if numbers else None,
            why=_why(at, scored, candidate_B, learner),
            question=both_ends(group.problem.question, QUESTION),
            surprise=_rounded(surprise[at]) if numbers else None,
            measure="ln p" if row.completion.logp_T is None else "log-ratio",
            turns=row.completion.turns,
            **columns_of([str(learner.policy.tokenizer.decode([id])) for id in ids], numbers),
        )
        size_bytes -= len(json.encode(line)) + 1
        if size_bytes < 0:
            break
        lines.append(line)
    return lines


def _numbers(scored: Scored) -> Tensor:
    """Return number_BT of ``Recorded``; NaN on padding, and in rows not read or not finite."""
    batch, start_BT = scored.batch, scored.logp_start_BT
    told_BT = ~batch.logp_gen_BT.isnan()
    number_BT = torch.where(told_BT, batch.logp_gen_BT - start_BT, start_BT)
    read_B = scored.read_B & torch.where(batch.mask_BT, number_BT, 0.0).isfinite().all(dim=1)
    return torch.where(batch.mask_BT & read_B.unsqueeze(1), number_BT, torch.nan)


def _why(at: int, scored: Scored, candidate_B: Tensor, learner: Learning) -> str:
    """Return in words why the kept advantage is not the advantage; "" where it is."""
    columns = scored.batch.advantage_B, candidate_B, scored.kept_advantage_B
    advantage, candidate, kept = (float(each_B[at]) for each_B in columns)
    if not advantage:
        return "its reward is the mean of its group"
    if at in scored.dropped:
        return f"left out: not finite ({scored.dropped[at]})"
    foreign = scored.batch.completions[at].author != learner.name
    if not candidate:
        none = learner.objective.others == "none"
        return f"not read: {'of another author' if none else 'a failure of another author'}"
    if not kept:
        far = learner.objective.filter and candidate < 0
        return "filtered: bad, and far from what this model writes" if far else "weight 0"
    if abs(kept / advantage - 1) > 1e-3:
        return f"weight {kept / advantage:.2g}{', by its likelihood here' * foreign}"
    return ""


def _rounded(value: Tensor | float) -> float:
    return round(float(value), 3)
