"""The command line of a swarm: run with a process each, join, keys, relay, doctor."""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

import potluck
from potluck import STARTING_RECIPE
from potluck.cli import training
from potluck.cli.base import TEAM
from potluck.config import as_tree, load
from potluck.doctor.checks import Finding
from potluck.exchange.keys.keys import Key, read_roster
from potluck.launch.children import variables_of_child
from potluck.launch.local_swarm import LocalSwarmResult
from potluck.launch.rounds import RunResult
from potluck.reports.events import Fanout, Notice, decode_event
from potluck.show.terminal.live import DISPLAYS


@pytest.fixture(autouse=True)
def starting_recipe(desk):
    shutil.copy(STARTING_RECIPE, desk / "first.toml")


def source():
    """The environment in which a process of its own finds the package."""
    return {**os.environ, "PYTHONPATH": str(Path(potluck.__file__).parents[1])}


# Run: one process, or one for each node.


@pytest.fixture
def ran(monkeypatch):
    """Which way a run went, and with what: [("one" or "each", words)]."""
    calls = []

    def in_one(config, place, resume, trust_code, displays):
        calls.append(("one", place, resume, trust_code))
        return RunResult(place, 25, False, {})

    def in_each(config, place, *, resume, display, trust_code):
        calls.append(("each", place, resume, trust_code))
        (place).mkdir(parents=True, exist_ok=True)
        (place / "recipe.json").write_text("{}")
        return LocalSwarmResult(False, dict.fromkeys(config.node, 0), {})

    monkeypatch.setattr(training, "_run", in_one)
    monkeypatch.setattr(training, "run_local_swarm", in_each)
    return calls


ALONE = 'name = "a"\n[node.alone]\nmodel = "builtin:digits-small"\n'


@pytest.mark.parametrize(
    "words, call",
    [
        (["first.toml"], ("each", Path("runs/digits"), False, False)),
        (
            ["first.toml", "--out", "here", "--resume", "--trust-code"],
            ("each", Path("here"), True, True),
        ),
        (["first.toml", "--one-process"], ("one", Path("runs/digits"), False, False)),
        (["alone.toml"], ("one", Path("runs/a"), False, False)),
    ],
)
def test_nodes_have_a_process_each_unless_one_is_asked_for(desk, potluck_says, ran, words, call):
    (desk / "alone.toml").write_text(ALONE)
    assert potluck_says("run", *words)[0] == 0
    assert ran == [call]


def test_under_torchrun_the_processes_are_there_already(potluck_says, ran, monkeypatch):
    monkeypatch.setattr(training, "TEAM", True)
    assert potluck_says("run", "first.toml") == (0, "potluck show runs/digits\n", "")
    assert [way for way, *_ in ran] == ["one"]


def test_what_torchrun_sets_is_what_is_looked_at():
    words = [sys.executable, "-c", "from potluck.cli.base import TEAM; print(TEAM)"]
    assert subprocess.check_output(words, env=source() | {"WORLD_SIZE": "4"}) == b"True\n"
    assert not TEAM


KILLED, ASKED = -int(signal.SIGKILL), -int(signal.SIGINT)
NO_MODEL, NO_SPACE = "potluck: no such model", "potluck: no space"
ENDS = {  # codes, complaints, has it begun: code, complaints
    "all fine": ((0, 0), (), True, 0, []),
    "a mistake that both found": ((2, 2), (NO_MODEL, NO_MODEL), False, 2, [NO_MODEL]),
    "a mistake that one found, and the other was asked to stop":
        ((2, 130), (NO_MODEL, "potluck: stopped at once"), False, 2, [NO_MODEL]),
    "one was killed and the other finished":
        ((KILLED, 0), ("a warning of torch's",), True, 1, ["potluck: a: killed by SIGKILL"]),
    "one broke down and the other finished":
        ((1, 0), ("potluck: not finite",), True, 1, ["potluck: a: not finite"]),
    "one ran out of disk and the other finished":
        ((2, 0), (NO_SPACE,), True, 1, ["potluck: a: no space"]),
    "both ran out of disk": ((2, 2), (NO_SPACE, NO_SPACE), True, 2, ["potluck: a, b: no space"]),
    "all were killed before they began":
        ((KILLED, KILLED), (), False, 1, ["potluck: killed by SIGKILL"]),
    "one ended without a word": ((3, 0), (), True, 1, ["potluck: a: ended with code 3"]),
    "one has a mistake and the other broke down": (
        (2, 1), (NO_SPACE, "potluck: not finite"), True, 1,
        ["potluck: a: no space", "potluck: b: not finite"]),
    "somebody else asked both to stop": ((130, 130), (), True, 130, []),
}  # fmt: skip


@pytest.fixture
def ends(monkeypatch):
    """A function that says how the processes of a run end."""

    def will(*codes, complaints=(), begun=True, interrupted=False):
        def run_local_swarm(config, place, **_):
            place.mkdir(parents=True)
            if begun:
                (place / "recipe.json").write_text("{}")
            by_name = dict(zip("ab", codes, strict=True)), dict(zip("ab", complaints, strict=False))
            return LocalSwarmResult(interrupted, *by_name)

        monkeypatch.setattr(training, "run_local_swarm", run_local_swarm)

    return will


@pytest.mark.parametrize("codes, complaints, begun, code, said", ENDS.values(), ids=ENDS)
def test_how_a_run_of_processes_ends(potluck_says, ends, codes, complaints, begun, code, said):
    ends(*codes, complaints=complaints, begun=begun)
    ended, out, err = potluck_says("run", "first.toml", "--out", "r")
    assert (ended, err.splitlines()) == (code, said)
    assert ("potluck show r" in out) == begun
    assert ("  potluck run r/recipe.json --out r --resume\n" in out) == (begun and code != 0)


@pytest.mark.parametrize("trust", [[], ["--trust-code"]])
def test_ctrl_c_ends_a_run_of_processes_with_the_line_that_goes_on(potluck_says, ends, trust):
    ends(130, 130, complaints=["potluck: stopped"], interrupted=True)
    code, out, err = potluck_says("run", "first.toml", "--out", "my run", *trust)
    assert (code, err) == (130, "")
    again = " ".join(["potluck run 'my run/recipe.json' --out 'my run' --resume", *trust])
    assert out == f"potluck show my run\nstopped, saved; go on with:\n  {again}\n"


@pytest.mark.parametrize(
    "codes, begun, code, last",
    [
        ((130, ASKED), False, 130, "stopped before anything was begun; nothing was written"),
        ((130, 1), True, 130, "  potluck run r/recipe.json --out r --resume"),
        ((0, 0), True, 0, "does sharing help? a control tells: potluck run r/recipe.json"),
    ],
    ids=["before it began", "and a node broke down", "when all was done"],
)
def test_ctrl_c_may_come_at_any_time(potluck_says, ends, codes, begun, code, last):
    ends(*codes, complaints=["potluck: stopped"], begun=begun, interrupted=True)
    ended, out, _ = potluck_says("run", "first.toml", "--out", "r")
    assert ended == code
    assert out.splitlines()[-1].startswith(last)


@pytest.mark.parametrize(
    "words", [["run", "first.toml"], ["join", "first.toml", "--as", "large"]], ids=lambda w: w[0]
)
def test_a_second_ctrl_c_is_one_line(potluck_says, monkeypatch, words):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "run_local_swarm", stopped)
    monkeypatch.setattr("potluck.launch.in_process.join", stopped)
    line = "potluck: stopped at once; --resume goes on from the last checkpoint\n"
    assert potluck_says(*words) == (130, "", line)


def test_a_resumed_run_of_processes_shows_the_rounds_that_are_done(desk, potluck_says, ran):
    for place in ("small/checkpoints/000004", "large/checkpoints/000012.part",
                  "large/checkpoints/000007", "elsewhere/checkpoints/000020"):  # fmt: skip
        (desk / "r" / place).mkdir(parents=True)
    shown = []

    def live(run):
        shown.append((run.rounds, run.first_round))
        return nullcontext(Fanout())

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(DISPLAYS, "live", live)
        potluck_says("run", "first.toml", "--out", "r", "--resume")
        potluck_says("run", "first.toml", "--out", "r")
    assert shown == [(25, 7), (25, 0)]


# Join.


@pytest.fixture
def joins(monkeypatch):
    """Puts something in the place of ``launch.join``, whose arguments are in ``calls``."""

    def will(result):
        def join(config, name, folder, **options):
            will.calls.append((config, name, folder, options))
            if isinstance(result, Exception):
                raise result
            return RunResult(folder, *result)

        will.calls = []
        monkeypatch.setattr("potluck.launch.in_process.join", join)
        return will.calls

    return will


@pytest.fixture
def joined(joins):
    return joins((5, False, {}))


JOIN = ["join", "first.toml", "--as", "large"]


def test_join_trains_the_node_that_is_named(potluck_says, joined):
    code, out, err = potluck_says(*JOIN)
    assert (code, out, err) == (0, "potluck show runs/digits\n", "")
    ((config, name, folder, options),) = joined
    assert config == load(Path("first.toml"))
    assert (name, folder) == ("large", Path("runs/digits"))
    assert options.pop("display")
    off = dict.fromkeys(("resume", "trust_code", "all_here", "watches_status"), False)
    assert options == off | {"allow_keys": ()}


OPTIONS = [
    (["--out", "here"], lambda call: call[2] == Path("here")),
    (["--resume"], lambda call: call[3]["resume"] is True),
    (["--allow-key", "s3=place"], lambda call: call[3]["allow_keys"] == ["s3=place"]),
    (["--trust-code"], lambda call: call[3]["trust_code"] is True),
    (["--all-here"], lambda call: call[3]["all_here"] is True),
    (["--web-at", "127.0.0.1:0"], lambda call: call[3]["watches_status"] is True),
    (["--set", "rounds=3"], lambda call: call[0].rounds == 3),
]


@pytest.mark.parametrize("words, has_reached", OPTIONS)
def test_every_option_of_join_reaches_it(potluck_says, joined, monkeypatch, words, has_reached):
    monkeypatch.setattr("potluck.cli.watching.page_of", lambda *_, **__: nullcontext("here"))
    assert potluck_says(*JOIN)[0] == 0
    assert potluck_says(*JOIN, *words)[0] == 0
    without, with_it = joined
    assert has_reached(with_it)
    assert not has_reached(without)


@pytest.fixture
def greeted(monkeypatch):
    """Puts a run in the place of ``run`` and ``join`` that says hello, and does no more."""

    def greet(config, *place, display, **options):
        display.show(Notice("hello"))
        return RunResult(place[-1], 5, False, {})

    monkeypatch.setattr("potluck.launch.in_process.join", greet)
    monkeypatch.setattr("potluck.launch.in_process.run", greet)


@pytest.mark.parametrize("words", [JOIN, ["run", "first.toml", "--one-process"]])
def test_progress_is_shown_on_the_displays_that_are_named(potluck_says, greeted, words):
    def says(*more):
        _, out, err = potluck_says(*words, *more)
        assert err == ""
        return [line for line in out.splitlines() if not line.startswith("potluck show")]

    assert says() == says("--display", "live") == ["hello"]
    assert says("--display", "none") == []
    (line,) = says("--display", "lines")
    assert decode_event(line) == Notice("hello")
    assert says("--display", "live", "--display", "lines") == ["hello", line]


def test_addresses_on_the_command_line_stand_for_those_of_the_recipe(desk, potluck_says, joined):
    text = Path("first.toml").read_text()
    table = '\n[swarm]\nlisten = ["tcp/old:1"]\nconnect = ["tcp/old:2"]\ngather_s = 7\n'
    (desk / "first.toml").write_text(text + table)
    potluck_says(*JOIN, "--connect", "tcp/new:2", "--connect", "tcp/new:3")
    potluck_says(*JOIN, "--listen", "tcp/new:1")
    assert [call[0].swarm.connect for call in joined] == [
        ("tcp/new:2", "tcp/new:3"),
        ("tcp/old:2",),
    ]
    assert [call[0].swarm.listen for call in joined] == [("tcp/old:1",), ("tcp/new:1",)]
    assert {call[0].swarm.gather_s for call in joined} == {7}


def test_a_stranger_brings_a_model_and_may_set_what_a_node_has(potluck_says, joined):
    stranger = ["join", "first.toml", "--as", "guest", "--model", "builtin:digits-large"]
    more = ["--set", "swarm.open=true", "--set", "node.guest.learning_rate=0.5"]
    assert potluck_says(*stranger, *more)[0] == 0
    ((config, name, _, _),) = joined
    assert name == "guest"
    assert set(config.node) == {"small", "large", "guest"}
    guest = config.node["guest"]
    assert (guest.model, guest.stranger, guest.learning_rate) == ("builtin:digits-large", True, 0.5)


GUEST = ["join", "first.toml", "--as", "guest"]
JOIN_MISTAKES = [
    (GUEST, "first.toml has no node 'guest'; it has small, large. A stranger .* --model MODEL"),
    ([*JOIN, "--model", "x"], "--set node.large.model=x changes it"),
    ([*GUEST, "--model", "x"], "the swarm takes none; set .swarm. open = true"),
    (["join", "odd.json", "--as", "large"], "has no node 'large'"),
    ([*JOIN, "--display", "liv"], "--display is 'liv'; choose one of live, lines, none$"),
]


@pytest.mark.parametrize("words, way_out", JOIN_MISTAKES)
def test_a_mistake_in_joining_is_one_line(desk, refused, joined, words, way_out):
    (desk / "odd.json").write_text('{"node": 3}')
    assert re.search(way_out, refused(*words))
    assert not joined


def test_a_join_that_was_stopped_says_how_to_go_on(desk, potluck_says, joins):
    joins((5, True, {}))
    code, out, err = potluck_says(*JOIN, "--out", "my run", "--trust-code")
    assert (code, err) == (130, "")
    assert out.splitlines() == [
        "potluck show my run",
        "stopped after 5 rounds, saved; go on with:",
        "  potluck join 'my run/large/join.json' --as large --out 'my run' --resume --trust-code",
    ]
    # What it says is a command that is understood.
    joins((6, False, {}))
    (desk / "my run/large").mkdir(parents=True)
    shutil.copy(desk / "first.toml", desk / "my run/recipe.toml")
    as_json = json.dumps(as_tree(load(desk / "first.toml")))
    (desk / "my run/large/join.json").write_text(as_json)
    assert potluck_says(*shlex.split(out.splitlines()[-1])[1:])[0] == 0


SKIPPED = "3 rounds were done, 5 skipped: the others were ahead"


@pytest.mark.parametrize("interrupted, skipped, lines", [(True, 5, 1), (False, 0, 0)])
def test_rounds_that_were_skipped_are_counted_at_the_end(
    potluck_says, joins, interrupted, skipped, lines
):
    joins((8, interrupted, {}, skipped))
    assert potluck_says(*JOIN)[1].splitlines().count(SKIPPED) == lines
    code, out, err = potluck_says(*JOIN, "--display", "lines")  # only events, for a program
    assert (code, err) == (130 if interrupted else 0, "")
    notice = {"event": "message", "text": f"large: {SKIPPED}"}
    assert [json.loads(line) for line in out.splitlines()] == [notice] * lines


# Keys.


def test_keys_makes_a_key_once_and_prints_the_line_of_a_roster_alone(desk, potluck_says):
    code, out, err = potluck_says("keys", "north", "--out", "secret/here")
    assert code == 0
    (desk / "roster.toml").write_text(out)
    assert read_roster(desk / "roster.toml") == {"north": Key.load(desk / "secret/here").public}
    assert "'secret/here'" in err
    assert "secret/here is new" in err
    before = (desk / "secret/here").read_text()
    assert before.strip().partition(":")[2] not in out + err
    code, again, err = potluck_says("keys", "north", "--out", "secret/here")
    assert (code, again) == (0, out)
    assert "was there" in err
    assert (desk / "secret/here").read_text() == before


def test_keys_writes_nothing_for_what_is_no_name(desk, refused):
    assert "'North Pole' is no name of a node" in refused("keys", "North Pole")
    assert not list(desk.rglob("*.key"))


# Relay.


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def test_a_relay_says_where_it_is_and_ends_when_asked_to():
    place = f"tcp/127.0.0.1:{free_port()}"
    relay = subprocess.Popen(
        [sys.executable, "-m", "potluck", "relay", "--listen", place],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=source(),
    )
    # Whatever happens the test ends: the pipe is shut with the process.
    timer = threading.Timer(300, relay.kill)
    timer.start()
    try:
        assert relay.stdout.readline().startswith(f"relay at {place}; Ctrl-C ends it.")
        relay.send_signal(signal.SIGINT)
        out, err = relay.communicate()
    finally:
        timer.cancel()
        relay.kill()
        relay.wait()
    assert relay.returncode == 0
    assert out.endswith("relay ended\n")
    assert err == ""


@pytest.fixture
def router(monkeypatch):
    """What ``open_router`` was called with; what it opens is asked to end, in one way or more."""
    lines = []

    @contextmanager
    def router(line):
        lines.append(line)
        try:
            yield
        finally:
            lines.append("closed")

    def asked(seconds):
        for number in router.signals:
            os.kill(os.getpid(), number)

    router.lines, router.signals = lines, [signal.SIGTERM]
    monkeypatch.setattr("potluck.cli.swarm.time", SimpleNamespace(sleep=asked))
    monkeypatch.setattr("potluck.exchange.zenoh.session.open_router", router)
    return router


def test_every_option_of_a_relay_reaches_its_line(potluck_says, router):
    assert potluck_says("relay")[0] == 0
    plain, closed = router.lines
    assert (plain.listen, plain.connect, plain.tls) == (("tcp/0.0.0.0:7447",), (), None)
    assert closed == "closed"
    router.lines.clear()
    words = ["--tls", "certs", "--as", "relay-2", "--names", "a,b", "--names", "c"]
    assert potluck_says("relay", *words)[0] == 0
    places = ["--listen", "tls/h:1", "--listen", "tls/h:2", "--connect", "tls/o:1"]
    assert potluck_says("relay", *words, *places)[0] == 0
    default, line = router.lines[0], router.lines[2]
    assert default.listen == ("tls/0.0.0.0:7447",)
    assert (line.listen, line.connect) == (("tls/h:1", "tls/h:2"), ("tls/o:1",))
    assert (line.tls.folder, line.tls.name, line.tls.names) == (
        Path("certs"), "relay-2", ("a", "b", "c"),
    )  # fmt: skip


@pytest.mark.parametrize("signals", [[signal.SIGINT], [signal.SIGTERM, signal.SIGINT]])
def test_a_relay_ends_well_however_it_is_told_to(potluck_says, router, signals):
    router.signals = signals
    code, out, err = potluck_says("relay")
    assert (code, err) == (0, "")
    assert out.endswith("relay ended\n")
    assert router.lines[-1] == "closed"


@pytest.mark.parametrize(
    "words, way_out",
    [
        (["--tls", "certs"], "--names north,south"),
        (["--names", "a"], "needs --tls"),
        (["--listen", "here"], "expected tcp/HOST:PORT"),
        (["--listen", "tcp/127.0.0.1:{taken}"], "is in use: stop what"),
        (["--tls", "certs", "--names", "a"], "certs/relay.pem"),
    ],
)
def test_a_relay_that_cannot_start_is_one_line(refused, words, way_out):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        err = refused("relay", *(word.format(taken=port) for word in words))
    assert way_out in err or "ca.pem" in err


# Doctor.


@pytest.fixture
def examined(monkeypatch):
    """The patients that were examined; each check of ``findings`` is found."""
    patients, findings = [], [Finding("a", "ok", "well"), Finding("b", "warn", "so so")]

    def examine(patient):
        patients.append(patient)
        yield from findings

    monkeypatch.setattr("potluck.doctor.examine.examine", examine)
    return patients, findings


def test_the_doctor_tells_each_check_in_a_line_and_ends_with_1_if_one_fails(potluck_says, examined):
    fine = "ok    a              well\nwarn  b              so so\n"
    assert potluck_says("doctor") == (0, fine, "")
    _, findings = examined
    findings.append(Finding("c", "FAIL", "bad\x1b[31m"))
    code, out, err = potluck_says("doctor")
    assert (code, err) == (1, "potluck: 1 check failed; see the lines above\n")
    assert out == f"{fine}FAIL  c              bad[31m\n"


def test_every_option_of_the_doctor_reaches_the_patient(potluck_says, examined):
    patients, _ = examined
    words = ["--as", "guest", "--model", "m", "--set", "swarm.open=true", "--out", "here"]
    places = ["--connect", "tcp/a:1", "--listen", "tcp/b:2"]
    assert potluck_says("doctor", "first.toml", *words, *places)[0] == 0
    assert potluck_says("doctor", "first.toml")[0] == 0
    assert potluck_says("doctor")[0] == 0
    guest, all_here, machine = patients
    assert (guest.name, guest.folder) == ("guest", Path("here"))
    assert (guest.listen, guest.connect) == (("tcp/b:2",), ("tcp/a:1",))
    assert guest.config.node["guest"].model == "m"
    assert (all_here.name, all_here.folder) == ("", Path("runs/digits"))
    assert all_here.members == ("small", "large")
    assert (machine.config, machine.folder) == (None, Path())


def test_the_doctor_needs_a_recipe_to_know_a_node(refused, examined):
    assert "potluck doctor RECIPE --as NAME" in refused("doctor", "--as", "large")


def test_controls_follow_a_run_that_is_done_and_nothing_else_does(potluck_says, ends, monkeypatch):
    made = []

    def run_controls(config, place, console, *, options):
        made.append((config.control, place, options))
        return len(made) > 1

    monkeypatch.setattr("potluck.launch.side_by_side.run_controls", run_controls)
    ends(0, 0)
    words = ["run", "first.toml", "--control", "half", "--control", "alone", "--trust-code"]
    code, out, _ = potluck_says(*words, "--out", "r")
    again = "run r/recipe.json --out r --resume --trust-code --control half --control alone"
    assert (code, out.splitlines()[-1]) == (130, f"  potluck {again}")
    assert made == [(("half", "alone"), Path("r"), ["--trust-code"])]
    ends(1, 0)
    assert potluck_says(*words, "--out", "other")[0] == 1
    assert len(made) == 1


@pytest.mark.parametrize("words", [
    ("run", "first.toml", "--control", "half"),
    ("run", "first.toml", "--set", "control=['alone']"),
    ("compare", "first.toml", "first.toml"),
    ("demo",),
])  # fmt: skip
def test_under_torchrun_no_command_starts_runs_of_its_own(desk, potluck_says, monkeypatch, words):
    """Each process would, and their nodes would wait for each other."""
    monkeypatch.setattr("potluck.cli.base.TEAM", True)
    code, _, said = potluck_says(*words)
    assert code == 2
    assert "starts runs of its own, and torchrun started several processes" in said


def test_what_a_process_of_torchrun_starts_is_none_of_torchruns(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "TORCHELASTIC_RUN_ID"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("MASTER_KEY", "of somebody else")
    assert variables_of_child({"OMP_NUM_THREADS": "1"}) == {
        name: value
        for name, value in (os.environ | {"OMP_NUM_THREADS": "1"}).items()
        if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "TORCHELASTIC_RUN_ID")
    }
