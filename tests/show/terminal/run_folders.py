"""Run folders and summaries for the tests, as small as they can be."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from potluck.episode import ToolCall, Turn, transcript
from potluck.reports import RoundReport
from potluck.types import Episode, Observation

HOSTILE = "\x1b[31m[red]boo[/red]\n<script>alert(1)</script>\u202egnorw\u200b\x9b2J&\"'"
"""ANSI in both spellings, rich markup, HTML, a turned reading order, a zero width."""

STEERS = "\x1b\x9b\u202e\u200b\r\x00"
"""None of these may reach a screen."""


def recipe(*nodes: str, **changes: Any) -> dict[str, Any]:
    return {
        "name": "my-run",
        "seed": 7,
        "rounds": 40,
        "plan": "vertical",
        "group_size": 12,
        "problems_per_round": 24,
        "task": {"name": "digits"},
        "objective": {"importance": "truncated", "filter": True},
        "node": {node: {"model": f"builtin:digits-{node}"} for node in nodes},
        **changes,
    }


def metrics(round: int, **changes: Any) -> dict[str, Any]:
    return {
        "round": round,
        "reward_mean": 0.25,
        "own_reward_mean": 0.5,
        "completions": 100,
        "rows_trained": 60,
        "updates": 1,
        "filtered_share": 0.2,
        "missing": [],
        "late": 0,
        "seconds": {"write": 1.25, "learn": 0.5},
        "sources": {
            "small": source(),
            "large": source(log_ratio_mean=-3.5, k3=None, likelihood_positive=None),
        },
        **changes,
    }


def report(round: int, **changes: Any) -> RoundReport:
    """Return the same as a noun."""
    return msgspec.convert(metrics(round, **changes), RoundReport)


def source(**changes: Any) -> dict[str, Any]:
    return {
        "completions": 50,
        "reward_mean": 0.375,
        "log_ratio_mean": -0.125,
        "k3": 0.75,
        "likelihood_positive": 0.75,
        "success_weight": 0.5,
        "capped_share": 0.11,
        "filtered_share_negative": 0.33,
        "effective_sample_size": 0.98,
        **changes,
    }


def written(**changes: Any) -> dict[str, Any]:
    return {
        "round": 3,
        "problem": "digits/1+2",
        "author": "small",
        "index": 0,
        "reward": 1.0,
        "end": "stop",
        "text": "3#3",
        **changes,
    }


def played(
    *turns: Turn, said: Sequence[str] = ("#####\n#.@G#\n#####", "2"), **changes: Any
) -> dict[str, Any]:
    """Return a line about an episode, with the turns as a node writes them."""
    turns = turns or (Turn("north"), Turn("I add.", (ToolCall("add", {"a": 1, "b": "é"}),)))
    tools = ("add" if turn.calls else "" for turn in turns)
    heard = tuple((Observation(each, tool),) for each, tool in zip(said, tools, strict=False))
    told = transcript(turns, Episode(heard, done=True, reward=1.0))
    text = "\n".join(turn.content for turn in turns)
    return written(**{"problem": "maze/train/1", "text": text, "turns": told, **changes})


def make_run(
    path: Path,
    *nodes: str,
    rounds: Sequence[Mapping[str, Any]] = (),
    evaluations: Sequence[Mapping[str, Any]] = (),
    completions: Sequence[Mapping[str, Any]] = (),
    problems: Sequence[Mapping[str, Any]] = (),
    **changes: Any,
) -> Path:
    """Write a run in which every node tells the same; a file that would be empty is not there."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "recipe.json").write_text(json.dumps(recipe(*nodes, **changes)))
    for node in nodes:
        (path / node).mkdir(exist_ok=True)
        for name, lines in (
            ("metrics.jsonl", rounds),
            ("evaluation.jsonl", evaluations),
            ("completions.jsonl", completions),
            ("problems.jsonl", problems),
        ):
            if lines:
                (path / node / name).write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    return path
