"""The controls of a run, made when it is done, in its folder; and what they tell."""

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace
from rich.console import Console

from potluck.config import RunConfig, StopConfig, load
from potluck.config.control import controls_of
from potluck.files import write_atomically
from potluck.launch.side_by_side import WholeRun, run_side_by_side
from potluck.node.storage.card import card_of
from potluck.reports.answers import add_answers, answer_of
from potluck.reports.runs import end_of, read_recipe


def run_controls(
    config: RunConfig, place: Path, console: Console, *, options: Sequence[str] = ()
) -> bool:
    """Make the controls of the finished run in ``place``, or go on with them, and keep what they
    tell, for ``show``, the page and the model cards. Return False if Ctrl-C stopped them, saved;
    raise SideBySideError if one breaks down. ``options`` are further ones of ``potluck run``."""
    config = replace(config, node=load(place / "recipe.json").node)  # from where it started
    recipe = read_recipe(place)
    ends = {name: end_of(place / name, recipe) for name in config.learners}
    controls, runs = controls_of(config), list[WholeRun]()
    for each in controls:
        end = max(ends[name] for name in each.nodes)  # before the last round by ``stop_when`` alone
        stop = StopConfig(rounds=end if end < config.rounds else 0)
        runs.append(WholeRun(replace(each.config, stop_when=stop), place / each.folder))
    if not run_side_by_side(runs, console, options=options):
        return False
    least = min(ends.values(), default=config.end)  # behind it a node had no partner
    found = [
        answer
        for each in controls
        for node in each.nodes
        if (answer := answer_of(place, place / each.folder, node, each.kind, least))
    ]
    if least < config.end:  # it ended as its greedy accuracy was high, or was not
        found = [replace(each, greedy=None) for each in found]
    add_answers(place, found)
    for name, end in ends.items():
        card = card_of(config, name, place / name, end).encode()
        write_atomically(place / name / "checkpoints" / f"{end:06d}" / "README.md", card)
    return True
