"""Results of a demo for the tests, as small as they can be."""

from typing import Any

from potluck.demo.run import OwnAnswers, Result
from potluck.reports.answers import ControlAnswer

EACH = 480
"""Problems of a kind in a round of half of the writing: WINDOW lies within a round."""


def course(*shares: float, added: float = 0.5, each: int = EACH) -> OwnAnswers:
    """Return a course with these shares of right subtractions, and one of additions."""
    right = tuple({"-": round(share * each), "+": round(added * each)} for share in shares)
    return OwnAnswers(right, ({"-": each, "+": each},) * len(shares))


def settings(**changes: list[OwnAnswers]) -> dict[str, list[OwnAnswers]]:
    return {
        "together": [course(0, 0.4, 0.8, 0.8)],
        "half": [course(0, 0, 0.5, 0.5)],
        "alone": [course(0, 0.2, 0.4, 0.6, each=2 * EACH)],
        **changes,
    }


def answer(control: str, alone: float, together: float = 0.5, node: str = "adder") -> ControlAnswer:
    return ControlAnswer(node, control, together, alone, (0.0, 0.0, 0.0), 24, (8, 8))


def result(**changes: Any) -> Result:
    content: dict[str, Any] = {
        "seeds": (7,),
        "seconds": 123.4,
        "nodes": {"adder": settings()},
        "answers": (answer("half", 0.25), answer("alone", 0.75)),
        **changes,
    }
    return Result(**content)
