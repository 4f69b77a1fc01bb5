"""Commands on what training left: evaluate, show, export, replay."""

import json
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from potluck.builder.consent import require_consent
from potluck.cli.base import (
    app,
    complain,
    err,
    loading_libraries,
    out,
    prepare_process,
    say,
    stoppable,
)
from potluck.cli.options import AllowKeys, Sets, TrustCode
from potluck.config import ConfigError, load
from potluck.evaluation.request import EvaluationRequest
from potluck.files import printable, write_atomically
from potluck.replay.plan import LEGEND, ReplayPlan, ReplayRow, differences_table, make_plan, table
from potluck.reports.events import Notice, PhaseProgress
from potluck.reports.runs import RunReadError, end_of, read_recipe, saved_results
from potluck.show.terminal.evaluation import show_evaluation
from potluck.show.terminal.live import LiveDisplay
from potluck.show.terminal.show import show
from potluck.show.terminal.text import decimal

if TYPE_CHECKING:
    from potluck.node.storage.export import Exported

RunFolder = Annotated[Path, typer.Argument(help="A run's folder")]
EvaluatedSplits = Annotated[str, typer.Option(help="validation, out-of-distribution or both")]
ProblemCount = Annotated[
    int | None,
    typer.Option(min=1, help="Number of each split, from the first (200, or the recipe's)"),
]
AnswerCount = Annotated[int, typer.Option(min=0, help="Answers to each problem; 0: k, for pass@k")]
LongestAnswer = Annotated[int | None, typer.Option(min=1, help="Most tokens (512 or the recipe's)")]
AnyModel = Annotated[str, typer.Argument(help="Folder, Hugging Face id, builtin:NAME or RUN/NODE")]
AsRecipe = Annotated[
    Path | None, typer.Option(help="Evaluate as this recipe does (default for RUN/NODE: its run's)")
]
ResultFile = Annotated[str, typer.Option("--json", help="Write results to this file; - is stdout")]


@app.command("evaluate")
def evaluate_command(
    model: AnyModel,
    against: Annotated[str, typer.Option(help="Another model: which of the two is better?")] = "",
    task: Annotated[str, typer.Option(help="The task's name, without a recipe")] = "",
    path: Annotated[str, typer.Option(help="The task's data, if it has any")] = "",
    recipe: AsRecipe = None,
    set: Sets = None,
    split: EvaluatedSplits = "both",
    problems: ProblemCount = None,
    k: Annotated[int, typer.Option("--k", min=0, help="pass@k; 0: greedy only")] = 0,
    samples: AnswerCount = 0,
    seed: Annotated[int, typer.Option(help="Seed of the samples")] = 0,
    max_new_tokens: LongestAnswer = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")] = "auto",
    dtype: Annotated[str, typer.Option(help="Generate in float32 or bfloat16")] = "float32",
    rows: Annotated[int, typer.Option(min=0, help="Answers written at once; 0: auto")] = 0,
    trust_code: TrustCode = False,
    file: ResultFile = "",
    examples: Annotated[
        int, typer.Option("--show", min=0, help="Answers shown of each kind that earned nothing")
    ] = 1,
) -> None:
    """Measure a model on held-out problems, or tell which of two models is better."""
    keys = {
        "task.path": json.dumps(path) if path else None,
        "evaluation.problems": problems,
        "evaluation.out_of_distribution": problems,
        "evaluation.max_new_tokens": max_new_tokens,
    }
    overrides = [f"{key}={value}" for key, value in keys.items() if value is not None]
    request = EvaluationRequest(
        model, against=against, task=task, recipe=recipe, overrides=[*(set or []), *overrides],
        split=split, k=k, samples=samples, seed=seed, device=device, dtype=dtype, rows=rows,
        trust_code=trust_code, shown=examples,
    )  # fmt: skip
    prepare_process(0)
    with loading_libraries(err):
        from potluck.evaluation.compare import evaluate_models, require_writable
        from potluck.launch.children import interrupts
    place = Path(file) if file not in ("", "-") else None
    if place:
        require_writable(place)
    shown = err if file == "-" else out  # what is for a program is alone on stdout
    stopped = "stopped; an evaluation begins anew each time"
    with stoppable(stopped), interrupts() as interrupted, LiveDisplay(shown) as display:
        found = evaluate_models(
            request,
            progress=lambda *step: display.show(PhaseProgress(*step)),
            say=lambda text: display.show(Notice(text)),
            stops=interrupted,
        )
        if not found["splits"]:
            raise KeyboardInterrupt
    show_evaluation(found, shown)
    text = json.dumps(found, indent=1, allow_nan=False)
    if place:
        write_atomically(place, f"{text}\n".encode())
    elif file:
        print(text)
    if found["partial"]:
        complain(stopped)
        raise typer.Exit(130)


@app.command("show")
def show_command(
    run: RunFolder,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write it as one page, a file to keep or to send")
    ] = None,
) -> None:
    """Show a run: accuracy, and each node's view of each author."""
    if html is None:
        show(run, out)
        return
    if not html.parent.is_dir():
        raise ConfigError(f"--html {html}: there is no folder {html.parent}; make it first")
    from potluck.show.web.page import keep, kept_page

    kept, left_out = keep({"": run}, title=run.resolve().name)
    write_atomically(html, kept_page(kept).encode())
    say(f"wrote {html}, {html.stat().st_size / 1e6:.1f} MB; left out: {'; '.join(left_out)}")


@app.command("export")
def export_command(
    checkpoint: Annotated[str, typer.Argument(help="A checkpoint, or any model of a recipe")],
    folder: Annotated[Path, typer.Argument(help="The folder to write; must not exist")],
    best: Annotated[
        bool, typer.Option("--best", help="Of RUN/NODE: not the newest, but the best on validation")
    ] = False,
    dtype: Annotated[
        str,
        typer.Option(help="auto (the type in which the model came), float32, bfloat16 or float16"),
    ] = "auto",
    allow_key: AllowKeys = None,
) -> None:
    """Write a checkpoint as a model of its own, an adapter merged into its base."""
    if dtype not in (formats := ("auto", "float32", "bfloat16", "float16")):
        raise ConfigError(f"--dtype is {dtype!r}; choose one of {', '.join(formats)}")
    prepare_process(0)
    from potluck.node.storage import checkpoint as checkpoints
    from potluck.node.storage.export import export

    with out.status(f"writing {printable(str(folder))} ..."):
        chosen = checkpoints.newest(checkpoints.best(checkpoint) if best else checkpoint)
        if is_served := bool(checkpoints.served(Path(chosen))):
            node, run = Path(chosen).absolute().parents[1:3]
            require_consent(load(run / "recipe.json"), [node.name], run, allow_key or (), False)
        exported = export(chosen, folder, dtype=dtype)
    for note in exported.notes:
        complain(note)
    where = shlex.quote(str(folder))
    with_base = f"merge it into its base: potluck export {where} ANOTHER"
    serve = with_base if is_served else f"as a server: vllm serve {where}"
    size = f"{exported.size_bytes / 1e6:,.1f} MB"
    say(f"wrote {folder}, {size} in {exported.dtype}{told_of_type(exported, dtype)}")
    if origin := _origin(Path(chosen), is_best=best):
        say(f"it is {origin}")
    say(f"try it: potluck evaluate {where} --task NAME, or {serve}")


def told_of_type(exported: "Exported", asked: str) -> str:
    """Say why an export has its type, and what another one would do."""
    share = "" if exported.kept is None else f"{exported.kept:.0%} of what was trained"
    if exported.dtype != exported.wanted:
        would = f"would keep {share}" if share else "may lose what was trained"
        why = f", as {exported.wanted}, in which it came, {would}"
    else:
        why = ", as it came" if asked == "auto" and exported.dtype != "float32" else ""
    if exported.dtype == "float32":
        return f"{why}; --dtype bfloat16 halves it"
    if exported.kept == 1:
        return why
    return f"{why}{f', which keeps {share}' if share else ''}; --dtype float32 keeps all digits"


def _origin(checkpoint: Path, *, is_best: bool) -> str:
    """Say of which round a checkpoint of a run is, and why it was chosen; "" of another model."""
    node = checkpoint.absolute().parents[1]
    if checkpoint.absolute().parent.name != "checkpoints" or not checkpoint.name.isdecimal():
        return ""
    done = int(checkpoint.name)
    with suppress(RunReadError):
        end, results = end_of(node, read_recipe(node.parent)), saved_results(node)
        told = f"{printable(node.name, 40)} after {done} of {end} rounds"
        if done in results:
            told += f", validation {decimal(results[done])}"
        others = f"the {len(results)} that are kept and were evaluated"
        return told + (f", the best of {others}" if is_best else "")
    return ""


@app.command("replay")
def replay_command(
    run: RunFolder,
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            help="lws, nois, vis, tis, f-nois, f-vis, f-tis, or FILE.py:NAME: LWS with a weight of "
            "your own; with commas (nois,lws and, of a run that sent log-probabilities, tis,f-tis)",
        ),
    ] = None,
    node: Annotated[str, typer.Option(help="One node of the run (all that are here)")] = "",
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds, from the first")] = None,
    folder: Annotated[Path | None, typer.Option("--out", help="Result folder (RUN/replay)")] = None,
    trust_code: TrustCode = False,
) -> None:
    """Train again on a run's completions, by each method; compare with on-policy gradients."""
    plan = make_plan(run, methods=method, node=node, rounds=rounds, out=folder)
    prepare_process(plan.config.threads)
    with loading_libraries(out):
        from potluck.replay.run import replay
    lines: list[ReplayRow] = []
    try:
        _keep(plan, replay(plan, say=complain, trust_code=trust_code), lines)
    except KeyboardInterrupt:
        kept = f"{len(lines)} lines are kept" if lines else "there was nothing to keep yet"
        complain(f"stopped; {kept}; a replay begins anew each time")
        raise typer.Exit(130) from None
    finally:
        if lines:
            _tell(plan, lines)


def _keep(plan: ReplayPlan, measured: Iterator[ReplayRow], lines: list[ReplayRow]) -> None:
    """Write each line as soon as it is there: whatever happens, what was measured stays."""
    total = {f"{n} {m}": len(rounds) for n, rounds in plan.rounds.items() for m in plan.methods}
    with LiveDisplay(out) as display:
        for name, rounds in total.items():
            display.show(PhaseProgress(name, "rounds", 0, rounds))
        for line in measured:
            with (plan.out / "replay.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(line), allow_nan=False) + "\n")
            lines.append(line)
            name = f"{line.node} {line.method}"
            done = sum(f"{x.node} {x.method}" == name for x in lines)
            display.show(PhaseProgress(name, "rounds", done, total[name]))


def _tell(plan: ReplayPlan, lines: list[ReplayRow]) -> None:
    out.print(table(lines, out))
    if len(plan.methods) > 1:
        out.print(differences_table(lines, out))
    out.print(LEGEND, style="dim", markup=False)
    say(f"  {plan.out / 'replay.jsonl'}")
