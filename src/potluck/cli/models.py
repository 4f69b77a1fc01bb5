"""Commands on what training left: evaluate, show, export."""

import json
from pathlib import Path
from typing import Annotated

import typer

from potluck.cli.base import Sets, TrustCode, app, complain, err, out, prepare_process, say
from potluck.config import ConfigError
from potluck.dashboard import LiveDisplay, printable, show, show_evaluation


@app.command("evaluate")
def evaluate_command(
    model: Annotated[
        str, typer.Argument(help="A folder, a Hugging Face id, builtin:NAME, or RUN/NODE")
    ],
    against: Annotated[str, typer.Option(help="Another model: which of the two is better?")] = "",
    task: Annotated[str, typer.Option(help="The task's name, without a recipe")] = "",
    path: Annotated[str, typer.Option(help="The task's data, where it has some")] = "",
    recipe: Annotated[
        Path | None, typer.Option(help="Ask as this recipe does (default for RUN/NODE: its run's)")
    ] = None,
    set: Sets = None,
    split: Annotated[str, typer.Option(help="validation, out-of-distribution or both")] = "both",
    problems: Annotated[
        int | None, typer.Option(min=1, help="Of each split, the first ones (200, or the recipe's)")
    ] = None,
    k: Annotated[int, typer.Option("--k", min=0, help="pass@k; 0: greedy only")] = 0,
    samples: Annotated[
        int, typer.Option(min=0, help="Of each problem, for pass@k; 0: k of them")
    ] = 0,
    temperature: Annotated[
        float | None, typer.Option(help="Of the samples (1, or the recipe's)")
    ] = None,
    top_k: Annotated[
        int | None, typer.Option("--top-k", min=0, help="0: all, or the recipe's")
    ] = None,
    top_p: Annotated[float | None, typer.Option("--top-p", help="1: all, or the recipe's")] = None,
    seed: Annotated[int, typer.Option(help="Of the samples")] = 0,
    max_new_tokens: Annotated[
        int | None, typer.Option(min=1, help="Longest answer (512, or the recipe's)")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")] = "auto",
    dtype: Annotated[str, typer.Option(help="Of the writing: float32 or bfloat16")] = "float32",
    rows: Annotated[int, typer.Option(min=0, help="Answers written at once; 0: auto")] = 0,
    trust_code: TrustCode = False,
    file: Annotated[
        str, typer.Option("--json", help="Write everything that was found; - is stdout")
    ] = "",
) -> None:
    """How good a model is by itself, on problems it does not train on; or which of two is."""
    keys = {
        "task.path": json.dumps(path) if path else None,
        "evaluation.problems": problems,
        "evaluation.out_of_distribution": problems,
        "evaluation.max_new_tokens": max_new_tokens,
        "sampling.temperature": temperature,
        "sampling.top_k": top_k,
        "sampling.top_p": top_p,
    }
    chosen = [f"{key}={value}" for key, value in keys.items() if value is not None]
    prepare_process(0)
    from potluck.evaluation import Request, evaluate_models, require_writable, write_report

    request = Request(
        model,
        against=against,
        task=task,
        recipe=recipe,
        overrides=[*(set or []), *chosen],
        split=split,
        k=k,
        samples=samples,
        seed=seed,
        device=device,
        dtype=dtype,
        rows=rows,
        trust_code=trust_code,
    )
    place = Path(file) if file not in ("", "-") else None
    if place:
        require_writable(place)
    shown = err if file == "-" else out  # what is for a program is alone on stdout
    try:
        with LiveDisplay(shown, rounds=0) as display:
            found = evaluate_models(request, progress=display.phase)
    except KeyboardInterrupt:
        complain("stopped; an evaluation begins anew each time")
        raise typer.Exit(130) from None
    show_evaluation(found, shown)
    if place:
        write_report(found, place)
    elif file:
        print(json.dumps(found, indent=1, allow_nan=False))


@app.command("show")
def show_command(run: Annotated[Path, typer.Argument(help="A run's folder")]) -> None:
    """What a run did: accuracy, and what each node made of each author."""
    show(run, out)


@app.command("export")
def export_command(
    checkpoint: Annotated[str, typer.Argument(help="A checkpoint, or any model of a recipe")],
    folder: Annotated[Path, typer.Argument(help="The folder to write; must not exist")],
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16")] = "float32",
) -> None:
    """Write a checkpoint as a model of its own, an adapter merged into its base."""
    if dtype not in ("float32", "bfloat16"):
        raise ConfigError(f"--dtype is {dtype!r}; choose one of float32, bfloat16")
    prepare_process(0)
    with out.status("loading torch and transformers ..."):
        from potluck.export import export
    with out.status(f"writing {printable(str(folder))} ..."):
        export(checkpoint, folder, dtype=dtype)
    say(f"wrote {folder}")
