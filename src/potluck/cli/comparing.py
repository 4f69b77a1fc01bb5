"""The command that compares two recipes, or runs that are done."""

import json
from collections.abc import Sequence
from glob import glob
from itertools import chain
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from msgspec.structs import replace

from potluck.cli.base import app, out, refuse_torchrun, say
from potluck.cli.options import AllowKeys, Sets, TrustCode, passed_on
from potluck.config import ConfigError, RunConfig, load
from potluck.files import write_atomically
from potluck.launch.side_by_side import WholeRun, run_side_by_side

SIDES = "Each a recipe, or finished runs: a folder, several with commas between, or 'runs/lws-*'"
SEEDS = 5


@app.command("compare")
def compare_command(
    sides: Annotated[list[str], typer.Argument(metavar="A B", help=SIDES)],
    seeds: Annotated[
        int | None, typer.Option(min=1, help=f"Runs of a recipe, from its seed on ({SEEDS})")
    ] = None,
    set: Sets = None,
    folder: Annotated[
        Path, typer.Option("--out", help="Folder of the runs that are made, and of the results")
    ] = Path("runs/compare"),
    trust_code: TrustCode = False,
    allow_key: AllowKeys = None,
) -> None:
    """Compare two recipes, or two lists of finished runs: which earns more, and how surely?"""
    if len(sides) != 2:
        raise ConfigError(
            f"compare takes two sides, A and B, and got {len(sides)}; name a folder that holds the "
            f"runs of a side, or put a pattern in quotes: 'runs/lws-*'"
        )
    recipes = {
        side: replace(load(Path(name), set or []), control=())
        for side, name in zip("ab", sides, strict=True)
        if Path(name).suffix in (".toml", ".json")
    }
    if (seeds or set) and not recipes:
        raise ConfigError("--seeds and --set are for recipes, but A and B are runs; leave them out")
    if len({str((config.task, config.reward)) for config in recipes.values()}) > 1:
        raise ConfigError(
            "the recipes of A and B have another task or [[reward]], so their rewards cannot be "
            "compared; give both the same"
        )
    if recipes:
        refuse_torchrun("compare")
    made = {
        side: [_planned(side, config, at, folder) for at in range(seeds or SEEDS)]
        for side, config in recipes.items()
    }
    options = passed_on(trust_code, allow_key)
    if not run_side_by_side([*chain(*made.values())], out, options=options):
        say("stopped, saved; the same command goes on")
        raise typer.Exit(130)
    a, b = (
        [run.folder for run in made[side]] if side in made else _found(name)
        for side, name in zip("ab", sides, strict=True)
    )
    _tell(a, b, folder)


def _planned(side: str, config: RunConfig, at: int, folder: Path) -> WholeRun:
    """Plan a run; its name begins with the side, as both recipes may have one name."""
    seed = config.seed + at
    place, nodes = folder / side / f"seed-{seed}", dict(config.node)
    begun = load(place / "recipe.json").node if (place / "recipe.json").is_file() else {}
    for name in nodes.keys() & begun.keys():  # a model RUN/NODE is the checkpoint of its start
        asked, model = Path(nodes[name].model), begun[name].model
        if Path(model).parent in (asked, asked / "checkpoints"):
            nodes[name] = replace(nodes[name], model=model)
    named = replace(config, seed=seed, name=f"{side}.{config.name[:40]}.{seed}", node=nodes)
    return WholeRun(named, place)


def _found(name: str) -> list[Path]:
    """List the runs that ``name`` means; what is no run stays, for the reader to complain of."""
    parts = [name] if Path(name).exists() else name.split(",")
    places = [Path(each) for part in parts for each in sorted(glob(part)) or [part]]
    runs: list[Path] = []
    for place in places:
        inside = sorted(each.parent for each in place.glob("*/recipe.json"))
        runs += [place] if (place / "recipe.json").is_file() else inside or [place]
    return runs


def _tell(a: Sequence[Path], b: Sequence[Path], folder: Path) -> None:
    from potluck.show.terminal.comparison import compare
    from potluck.show.terminal.style import save

    found = compare(a, b)
    tree = {"verdict": found.verdict, "over": found.over, **msgspec.to_builtins(found)}
    text = json.dumps(tree, indent=1, allow_nan=False)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "compare.md", found.markdown().encode())
    write_atomically(folder / "compare.json", f"{text}\n".encode())
    out.print(found.table(out))
    out.print(found.note, style="dim", markup=False)
    save(found.plot, folder / "compare.png")
    for line in (*found.sides, found.verdict, f"  {folder}/compare.png, compare.md, compare.json"):
        say(line)
