"""Results of a demo for the tests, as small as they can be."""

from typing import Any

from potluck.demo.report import Outcome, Result


def outcome(late: float, **changes: Any) -> Outcome:
    """Return an outcome of four rounds, the second two with a sampled reward of ``late``."""
    content: dict[str, Any] = {
        "written": 48,
        "sampled": (0.25, 0.25, late, late),
        "greedy": 1.0,
        "out_of_distribution": 0.75,
        **changes,
    }
    return Outcome(**content)


def outcomes(alone: float = 0.8, half: float = 0.7, lws: float = 0.81) -> dict[str, Outcome]:
    return {
        "alone": outcome(alone, written=96),
        "half": outcome(half, greedy=0.5),
        "lws": outcome(lws, out_of_distribution=None),
    }


def result(**changes: Any) -> Result:
    content: dict[str, Any] = {
        "seed": 7,
        "rounds": 4,
        "seconds": 123.4,
        "nodes": {"large": outcomes(), "small": outcomes(0.5, 0.5, 0.25)},
        **changes,
    }
    return Result(**content)
