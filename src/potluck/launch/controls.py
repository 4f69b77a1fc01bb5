"""The controls of a run, made when it is done, in its folder; and what they tell."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from potluck.config import RunConfig
from potluck.config.control import controls_of
from potluck.files import write_atomically
from potluck.launch.side_by_side import WholeRun, run_side_by_side
from potluck.node.storage.card import card_of
from potluck.reports.answers import add_answers, answer_of


def run_controls(
    config: RunConfig, place: Path, console: Console, *, options: Sequence[str] = ()
) -> bool:
    """Make the controls of the finished run in ``place``, or go on with them, and keep what they
    tell, for ``show``, the page and the model cards. Return False if Ctrl-C stopped them, saved;
    raise SideBySideError if one breaks down. ``options`` are further ones of ``potluck run``."""
    controls = controls_of(config)
    runs = [WholeRun(each.config, place / each.folder) for each in controls]
    if not run_side_by_side(runs, console, options=options):
        return False
    found = (
        answer_of(place, place / each.folder, node, each.kind, config.rounds)
        for each in controls
        for node in each.nodes
    )
    add_answers(place, [each for each in found if each])
    for name in config.learners:
        card = card_of(config, name, place / name, config.rounds).encode()
        last = place / name / "checkpoints" / f"{config.rounds:06d}"
        write_atomically(last / "README.md", card)
    return True
