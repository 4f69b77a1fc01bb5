"""Commands that train on this machine, or look before: demo, new, env check, run."""

import json
import shlex
import signal
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from msgspec.structs import replace

from potluck import STARTING_RECIPE
from potluck.builder.consent import require_consent, secrets_of
from potluck.builder.task import require_trusted
from potluck.cli import options
from potluck.cli.base import (
    TEAM,
    app,
    complain,
    err,
    exit_code,
    loading_libraries,
    out,
    prepare_process,
    refuse_torchrun,
    say,
    stoppable,
)
from potluck.cli.watching import shown_in_browser
from potluck.collector import without_collector
from potluck.config import ConfigError, RunConfig, as_tree, load
from potluck.config.control import controls_of
from potluck.launch.children import STOPPED
from potluck.launch.local_swarm import LocalSwarmResult, run_local_swarm
from potluck.launch.side_by_side import WholeRun
from potluck.node.storage.folder import has_no_round
from potluck.node.storage.same_run import require_folder
from potluck.reports.answers import told
from potluck.reports.events import Display
from potluck.show.terminal.live import Watched, open_displays
from potluck.types import PotluckError

if TYPE_CHECKING:
    from potluck.launch.rounds import RunResult

AT_ONCE = "stopped at once; --resume goes on from the last checkpoint"
LIMITS = 5.0, 4 << 30
"""Values of [task] step_s and memory_gib, if they are not given."""
TURN = 'A turn to try; a call is {"name": ..., "arguments": {}}; may be repeated'

env = typer.Typer(no_args_is_help=True, help="Look at an environment before a run does.")
app.add_typer(env, name="env")


@app.command("demo")
def demo_command(
    folder: Annotated[Path, typer.Option("--out", help="Folder of runs and report")] = Path(
        "potluck-demo"
    ),
    rounds: Annotated[int | None, typer.Option(min=1, help="Number of rounds")] = None,
    seed: Annotated[int, typer.Option(help="First seed of problems and samples")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds")] = 3,
) -> None:
    """Train two models with one skill each, together and each by itself, and compare."""
    refuse_torchrun("potluck demo")
    from potluck.demo.run import demo

    with stoppable(f"stopped; what there is of it is in {folder}"):
        demo(folder, rounds=rounds, seeds=range(seed, seed + seeds), console=out)


@app.command("new")
def new_command(
    recipe: Annotated[Path, typer.Argument(help="The file to write")],
    task: Annotated[
        Literal["digits", "maze", "calculator"],
        typer.Option(help="Sums; a game of many turns; tools"),
    ] = "digits",
) -> None:
    """Write a commented recipe to start from."""
    start = STARTING_RECIPE
    if task != "digits":
        start = start.with_stem(f"{start.stem}-{task}")
    try:
        with recipe.open("x", encoding="utf-8") as file:
            file.write(start.read_text(encoding="utf-8"))
    except FileExistsError:
        raise ConfigError(f"{recipe} exists; name another file or remove it") from None
    except OSError as error:
        raise ConfigError(f"cannot write {recipe}: {error.strerror}") from error
    say(f"wrote {recipe}; next: potluck run {recipe} --check")


@env.command("check")
def check_command(
    name: Annotated[str, typer.Argument(metavar="FILE.py:NAME", help="A class, which is run")],
    environment: Annotated[bool, typer.Option("--environment", help="It has tools")] = False,
    action: Annotated[list[str] | None, typer.Option("--action", metavar="TEXT", help=TURN)] = None,
    rows: Annotated[Path | None, typer.Option(help="File of rows for reset; see task.path")] = None,
) -> None:
    """Play an environment several times over, to see whether it repeats; it ends with 1 if not."""
    from potluck.tasks.environments.check import MOST_ROWS, check
    from potluck.tasks.environments.host import Spec
    from potluck.tasks.sources import FILES, file_rows

    read = islice(file_rows(str(rows), FILES), MOST_ROWS) if rows else [("", {})]
    with stoppable("stopped; nothing was written"), err.status(f"playing {name} ..."):
        spec = Spec("environment" if environment else None, name)
        found = check(spec, LIMITS, [row for _, row in read], action or ())
    say(f"{name} ({found.kind}): {found}")
    for line in found.why:
        say(f"  {line}")
    for line in found.warnings:
        complain(line)
    if found.grade == "own":
        raise typer.Exit(1)


@app.command("run")
def run_command(
    recipe: options.Recipe,
    set: options.Sets = None,
    folder: options.Out = None,
    check: options.Plans = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --check: print only the recipe, with every default")
    ] = False,
    resume: options.Resume = False,
    trust_code: options.TrustCode = False,
    allow_key: options.AllowKeys = None,
    gpu: Annotated[
        str, typer.Option("--gpu", help="With --check: does it fit? h100, rtx4090, ... or GiB")
    ] = "",
    prompt: Annotated[
        bool,
        typer.Option("--prompt", help="With --check: print each node's first prompt"),
    ] = False,
    one_process: Annotated[
        bool,
        typer.Option("--one-process", help="All nodes in this process: the same bits each time"),
    ] = False,
    control: options.Controls = None,
    display: options.Displays = None,
    web: options.Web = False,
    web_at: options.WebAt = "",
    web_token: options.WebToken = False,
) -> None:
    """Train the nodes of a recipe together on this machine, each in a process of its own."""
    config = load(recipe, [*(set or []), *([f"control={json.dumps(control)}"] * bool(control))])
    controls_of(config)  # raises for one that cannot be had
    if config.control and not check:
        refuse_torchrun("control")
    place = folder or Path("runs") / config.name
    if not check:
        require_trusted(config, trust_code)
        if resume and (place / "recipe.json").is_file():  # before the consent is noted in it
            require_folder(place, config, resume)
        require_consent(config, config.node, place, allow_key or (), trust_code)
    if as_json and not check:
        raise ConfigError("--json prints a recipe and starts nothing, so it needs --check")
    if gpu and not check:
        raise ConfigError("--gpu only plans, so it needs --check; [node.NAME] device places a run")
    if prompt and (as_json or not check):
        raise ConfigError(
            "--prompt shows what is asked, and starts nothing: give --check, no --json"
        )
    prepare_process(config.threads)
    if check:
        return _check(
            config,
            as_json,
            trust_code=trust_code,
            gpu=gpu,
            one_process=one_process,
            prompt=prompt,
        )
    page = shown_in_browser(place, display or [], web=web, at=web_at, token=web_token)
    with stoppable(AT_ONCE), page as stay:
        code = 0
        if not (resume and config.control and WholeRun(config, place).is_done):
            if one_process or TEAM or len(config.node) == 1:
                result = _run(config, place, resume, trust_code, display)
                command = f"run {_recipe_of(place)}"
                code = tell_end(result, command, place, trust_code, config.control)
            else:
                code = _run_apart(config, place, resume, trust_code, display)
        if not code and config.control:
            code = _run_controls(config, place, trust_code)
        if not code and len(config.node) > 1 and (place / "recipe.json").is_file():
            for line in told(place):
                say(line)
        if not code:
            stay()
    if code:
        raise typer.Exit(code)


def _check(
    config: RunConfig,
    as_json: bool,
    *,
    trust_code: bool,
    gpu: str,
    one_process: bool,
    prompt: bool,
) -> None:
    with loading_libraries(out):
        from potluck.builder.plan import check
    with without_collector():
        checked = check(
            config, trust_code=trust_code, gpu=gpu, one_process=one_process, prompt=prompt
        )
    if as_json:  # for a file, so it is not folded
        print(json.dumps(as_tree(config), indent=2))
    else:
        out.print(checked)


def _run_apart(
    config: RunConfig, place: Path, resume: bool, trust_code: bool, displays: list[str] | None
) -> int:
    with opened(displays, place, config, resume) as shown:
        ended = run_local_swarm(config, place, resume=resume, display=shown, trust_code=trust_code)
    return _tell_ends(ended, place, trust_code, config.control)


def _run_controls(config: RunConfig, place: Path, trust_code: bool) -> int:
    from potluck.launch.side_by_side import run_controls

    names = ", ".join(each.config.name for each in controls_of(config))
    say(f"now the controls, to tell whether sharing helped: {names}")
    keys = [*dict.fromkeys(each.pair for each in secrets_of(config, config.node))]  # allowed above
    if not run_controls(config, place, out, options=options.passed_on(trust_code, keys)):
        say("stopped, saved; go on with:")
        _say_command(f"run {_recipe_of(place)}", place, trust_code, config.control)
        return 130
    return 0


def _run(
    config: RunConfig, place: Path, resume: bool, trust_code: bool, displays: list[str] | None
) -> "RunResult":
    with loading_libraries(out):
        from potluck.launch.in_process import run
    resuming = f"run {_recipe_of(place)}"
    with (
        telling_what_is_saved(resuming, place, displays or [], trust_code, config.control),
        opened(displays, place, config, resume) as display,
    ):
        whole = replace(config, control=())  # made by this command, behind the run
        return run(whole, place, resume=resume, display=display, trust_code=trust_code)


def opened(
    displays: list[str] | None, place: Path, config: RunConfig, resume: bool
) -> AbstractContextManager[Display]:
    """Open the displays of a run, which goes on where names of checkpoints say: without torch."""
    folders = (each for node in config.node for each in (place / node / "checkpoints").glob("*"))
    saved = (int(each.name) for each in folders if resume and each.name.isdecimal())
    return open_displays(displays or ["live"], Watched(out, config.end, max(saved, default=0)))


@contextmanager
def telling_what_is_saved(
    command: str,
    place: Path,
    displays: Sequence[str],
    trust_code: bool,
    controls: Sequence[str] = (),
) -> Iterator[None]:
    """Say behind an error whether the run was saved, and how to go on with it. Of a node whose
    display is lines its parent says so, which reads its last line as the error."""
    try:
        yield
    except PotluckError as error:
        notes = getattr(error, "__notes__", ())
        if not notes or "lines" in displays:
            raise
        complain(str(error))
        for note in notes:
            complain(note)
        if any(note.startswith("saved after") for note in notes):
            _say_command(command, place, trust_code, controls)
        raise typer.Exit(exit_code(error)) from error


def tell_end(
    result: "RunResult",
    command: str,
    place: Path,
    trust_code: bool,
    controls: Sequence[str] = (),
) -> int:
    """Say where the run is, and how to go on with one that was stopped; return the exit code."""
    say(f"potluck show {result.folder}")
    if result.skipped:
        say(skipped_text(result))
    if not result.interrupted:
        return 0
    say(f"stopped after {result.rounds} rounds, saved; go on with:")
    _say_command(command, place, trust_code, controls)
    return 130


def skipped_text(result: "RunResult") -> str:
    done = result.rounds - result.skipped
    return f"{done} rounds were done, {result.skipped} skipped: the others were ahead"


def _tell_ends(
    ended: LocalSwarmResult, place: Path, trust_code: bool, controls: Sequence[str]
) -> int:
    """Say once what several nodes complain of, and how to go on; return the exit code."""
    begun = (place / "recipe.json").is_file()
    failed = {name: code for name, code in ended.codes.items() if code and code not in STOPPED}
    said: dict[str, list[str]] = {}
    for name, code in failed.items():
        why = ended.complaints.get(name, f"ended with code {code}").removeprefix("potluck: ")
        if code < 0:  # What it said before has nothing to do with that.
            why = f"killed by {signal.Signals(-code).name}"
        said.setdefault(why, []).append(name)
    for why, names in said.items():
        complain(f"{', '.join(names)}: {why}" if begun else why)
    # 2 where every node says what its user can mend; 1 where one broke down, or others went on.
    mendable = set(failed.values()) == {2} and 0 not in ended.codes.values()
    code = 2 if mendable else int(bool(failed))
    if not begun:
        if not failed:
            say("stopped before anything was begun; nothing was written")
        return code or 130
    is_over = not any(ended.codes.values())  # Ctrl-C may have come when all was done
    if has_no_round(place) and not is_over:
        say("no round was finished, so nothing is kept: mend it, and run it again")
    else:
        say(f"potluck show {place}")
        if not is_over:
            say("to go on from what is saved:" if failed else "stopped, saved; go on with:")
            _say_command(f"run {_recipe_of(place)}", place, trust_code, controls)
    return 0 if is_over else 130 if ended.interrupted else code or 130


def _recipe_of(place: Path) -> str:
    """Name the resolved recipe: what --set changed stays changed."""
    return shlex.quote(str(place / "recipe.json"))


def _say_command(command: str, place: Path, trust_code: bool, controls: Sequence[str] = ()) -> None:
    more = " --trust-code" if trust_code else ""
    more += "".join(f" --control {kind}" for kind in controls)
    say(f"  potluck {command} --out {shlex.quote(str(place))} --resume{more}")
