"""The command that has a run's rounds learned from again: replay."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from potluck.cli.base import TrustCode, app, complain, out, prepare_process, say
from potluck.dashboard import CellsDisplay
from potluck.replay.lines import LEGEND, Line, table
from potluck.replay.plan import Plan, make_plan


@app.command("replay")
def replay_command(
    run: Annotated[Path, typer.Argument(help="A run's folder")],
    method: Annotated[
        str, typer.Option("--method", help="nois, vis, tis, f-nois, f-vis, f-tis; with commas")
    ] = "nois,tis,f-tis",
    node: Annotated[str, typer.Option(help="One node of the run (all that are here)")] = "",
    rounds: Annotated[int | None, typer.Option(min=1, help="The first ones only")] = None,
    folder: Annotated[
        Path | None, typer.Option("--out", help="Where everything goes (RUN/replay)")
    ] = None,
    trust_code: TrustCode = False,
) -> None:
    """Learn from a run's completions again, by each method: which is nearest to on-policy?"""
    plan = make_plan(run, methods=method, node=node, rounds=rounds, out=folder)
    prepare_process(plan.config.threads)
    with out.status("loading torch and transformers ..."):
        from potluck.replay.rehearsal import replay
    lines: list[Line] = []
    stopped = False
    try:
        _keep(plan, replay(plan, say=complain, trust_code=trust_code), lines)
    except KeyboardInterrupt:
        stopped = True
    finally:
        if lines:
            _tell(plan, lines)
    if stopped:
        kept = f"{len(lines)} lines are kept" if lines else "there was nothing to keep yet"
        complain(f"stopped; {kept}; a replay begins anew each time")
        raise typer.Exit(130)


def _keep(plan: Plan, measured: Iterator[Line], lines: list[Line]) -> None:
    """Writes each line as soon as it is there: whatever happens, what was measured stays."""
    total = {
        f"{name} {method}": len(rounds)
        for name, rounds in plan.rounds.items()
        for method in plan.methods
    }
    with CellsDisplay(out, total) as display:
        for line in measured:
            with (plan.out / "replay.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(line), allow_nan=False) + "\n")
            lines.append(line)
            done = sum((x.node, x.method) == (line.node, line.method) for x in lines)
            display.update(f"{line.node} {line.method}", done)


def _tell(plan: Plan, lines: list[Line]) -> None:
    from potluck.replay.picture import draw

    draw(lines, plan.out / "replay.png")
    out.print(table(lines, out))
    out.print(LEGEND, style="dim", markup=False)
    for name in ("replay.png", "replay.jsonl"):
        say(f"  {plan.out / name}")
