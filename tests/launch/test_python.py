"""``potluck.run`` as a Python program or a notebook calls it."""

import json
import linecache
import re
import sys
import threading
import types
from concurrent.futures import Future

import pytest

import potluck
import tiny
from displays import Listener
from potluck.config import ConfigError, as_tree
from potluck.launch import in_process
from potluck.reports.events import Evaluated, PhaseProgress, RoundDone
from potluck.tasks import TaskError
from potluck.tasks.rewards import HANDED

PLAIN = {"problems_per_round": 2, "task": {"name": "digits"}}


def of_main(name, value=1.0):
    """A function of the program, as a cell defines it; it pays every second completion."""
    text = f"def {name}(completions, **columns):\n  return [{value} * (i % 2) for i in ids]"
    text, cell = text.replace("ids", "range(len(completions))"), f"<cell {name} {value}>"
    linecache.cache[cell] = len(text), None, text.splitlines(keepends=True), cell
    exec(compile(text, cell, "exec"), scope := {"__name__": "__main__"})
    return scope[name]


@pytest.fixture
def recipe(tiny_models, desk):
    """A recipe of two nodes; its tree, which a run may be given as it is."""
    yield as_tree(tiny.recipe(tiny_models, **PLAIN))
    HANDED.get().clear()


def metrics(folder, node="small"):
    lines = map(json.loads, (folder / node / "metrics.jsonl").read_text().splitlines())
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def test_a_path_a_tree_and_a_config_are_one_recipe(recipe, desk):
    (desk / "recipe.json").write_text(json.dumps(recipe))
    made = potluck.run("recipe.json")
    assert (str(made.folder), made.rounds) == ("runs/tiny", 2)
    potluck.run(recipe, "tree", display=None)
    potluck.run(potluck.from_tree(recipe), desk / "config", display="none")
    assert metrics(desk / "tree") == metrics(desk / "config") == metrics(made.folder)
    with pytest.raises(ConfigError, match=r"\[node.a\] has no key 'modle'; did you mean 'model'"):
        potluck.plan_cost({"name": "x", "node": {"a": {"modle": "-"}}})
    with pytest.raises(ConfigError, match="the run has no node 'c'; it has large, small"):
        potluck.join("recipe.json", "c")


def test_functions_are_rewards(recipe, desk):
    right, brief = of_main("right"), of_main("brief", -1.0)
    potluck.run(recipe, "paid", rewards=[right, (brief, 0.5), "task"], display=None)
    stored = json.loads((desk / "paid" / "recipe.json").read_text())["reward"]
    assert [(each["function"], each["weight"]) for each in stored] == [
        ("__main__:right", 1), ("__main__:brief", 0.5), ("task", 1),
    ]  # fmt: skip
    line = metrics(desk / "paid")[0]
    means = {name: part["mean"] for name, part in line["rewards"].items()}
    assert means == {"right": 0.5, "brief": -0.5, "task": 0}
    assert 0 < line["own_reward_mean"] <= 0.25  # what is cut off earns nothing

    def resume(*rewards):
        longer = {**recipe, "rounds": 3}
        return potluck.run(longer, "paid", rewards=rewards, resume=True, display=None).rounds

    with pytest.raises(potluck.PotluckError, match=r"digest .*code of its rewards has changed"):
        resume(of_main("right", 2.0), (brief, 0.5), "task")
    assert resume(of_main("right"), (brief, 0.5), "task") == 3  # another object of the same source


def test_a_program_without_the_function_says_so(recipe, potluck_says):
    potluck.run(recipe, "paid", rewards=[of_main("right")], display=None)
    HANDED.get().clear()  # as in another process
    options = ("--out", "again", "--trust-code", "--one-process")
    code, _, err = potluck_says("run", "paid/recipe.json", *options)
    assert code == 2
    assert err.startswith("potluck: reward '__main__:right' is of the Python program or notebook")
    assert potluck_says("show", "paid")[0] == 0


def test_what_rewards_may_be(recipe):
    def refuses(error, match, *rewards):
        with pytest.raises(error, match=match):
            potluck.run(recipe, "refused", rewards=rewards, display=None)

    refuses(TaskError, "expected a function with a name, by def", lambda completions: [0])
    exec("def typed(completions): ...", scope := {"__name__": "__main__"})
    refuses(TaskError, "'__main__:typed' has no source; define it in a file", scope["typed"])
    refuses(ConfigError, "give each function its own name", of_main("f"), of_main("f", 2.0))
    refuses(ConfigError, "runs code, .*'rewards.py:f'", of_main("g"), "rewards.py:f")
    refuses(ConfigError, "weight is 'much': Expected `float`", (of_main("f"), "much"))


def test_callbacks_are_told_of_rounds_and_a_broken_one_ends_the_run(recipe, desk):
    told = []
    (desk / "hook.py").write_text("told = []\ndef hook(event):\n  told.append(event)\n")
    sys.path.insert(0, str(desk))
    try:
        import hook

        recipe["log"]["callback"] = "hook:hook"
        with pytest.raises(ConfigError, match=r"\[log\] callback 'hook:hook'; read it, then allow"):
            potluck.run(recipe, "not", display=None)
        potluck.run(recipe, "told", callbacks=[told.append], trust_code=True, display=None)
    finally:
        sys.path.remove(str(desk))
    assert hook.told == told
    assert [type(event) for event in told].count(RoundDone) == 4
    assert {type(event) for event in told} >= {RoundDone, Evaluated}
    assert PhaseProgress not in {type(event) for event in told}

    def low(event):
        if isinstance(event, RoundDone):
            raise ValueError("too low")

    recipe["log"]["callback"] = ""
    with pytest.raises(ConfigError, match=r"^callback low raised ValueError: too low \(test_py"):
        potluck.run(recipe, "broken", callbacks=[low], display=None)
    assert [place.name for place in desk.glob("broken/*/checkpoints/*")] == ["000001"] * 2


def test_a_run_in_the_background_is_stopped_and_goes_on(recipe, monkeypatch):
    def stop(event):
        if isinstance(event, RoundDone):
            handle.stop()

    handle = potluck.run(recipe, "half", background=True, callbacks=[stop], display=None)
    assert not handle.cancel()
    assert (handle.result().rounds, handle.result().interrupted, handle.done()) == (1, True, True)
    result = Future.result

    def interrupted(future, timeout=None):
        monkeypatch.setattr(Future, "result", result)
        raise KeyboardInterrupt

    longer = {**recipe, "rounds": 60}
    handle = potluck.run(longer, "half", resume=True, background=True, display=None)
    monkeypatch.setattr(Future, "result", interrupted)  # Ctrl-C in a program that waits
    assert handle.result().interrupted
    ends = []
    monkeypatch.setattr("atexit.register", ends.append)
    handle = potluck.run(longer, "ends", background=True, display=None)
    ends[0]()  # the program's end
    assert handle.done()
    assert handle.result().interrupted
    exists, shown = "half exists; --resume goes on with that run", []
    display = types.SimpleNamespace(show=shown.append)
    with pytest.raises(potluck.PotluckError, match=exists):
        potluck.run(recipe, "half", background=True, display=display).result()
    assert [re.search(exists, notice.text) is not None for notice in shown] == [True]
    with pytest.raises(potluck.PotluckError, match=exists):
        potluck.run(recipe, "half", display=display)
    assert len(shown) == 1  # who waits has the error itself


def test_a_run_in_the_background_keeps_what_it_was_given(recipe, desk, monkeypatch):
    """Its function and its folder, though others are meant before the thread asks for them."""
    started, begin = threading.Event(), in_process.run_nodes

    def run_nodes(*args, **options):
        started.wait()
        return begin(*args, **options)

    monkeypatch.setattr(in_process, "run_nodes", run_nodes)
    recipe, elsewhere = {**recipe, "rounds": 1}, desk / "elsewhere"
    elsewhere.mkdir()
    handles = [
        potluck.run(
            recipe, f"of {value}", rewards=[of_main("f", value)], background=True, display=None
        )
        for value in (1.0, 2.0)
    ]
    monkeypatch.chdir(elsewhere)
    started.set()
    for handle in handles:
        handle.result()
    means = [metrics(desk / f"of {value}")[0]["rewards"]["f"]["mean"] for value in (1.0, 2.0)]
    assert means == [0.5, 1.0]


def test_progress_is_told_when_there_is_some(recipe):
    seen = {}

    class Heard(Listener):
        def phase(self, *event):
            assert seen.get(event[0]) != event
            seen[event[0]] = event

    potluck.run(recipe, "heard", display=Heard())
    assert seen


class Kernel(types.ModuleType):
    """A notebook: what is displayed, and each change of it."""

    def __init__(self):
        super().__init__("IPython")
        self.shown, self.display, self.kernel = [], self, True
        self.version_info = (9, 0)

    def get_ipython(self):
        return self

    def __call__(self, first, *, raw, display_id):
        return types.SimpleNamespace(update=self.shown.append)


def test_a_notebook_has_a_curve_and_a_script_has_lines(recipe, monkeypatch, capsys):
    potluck.run(recipe, "script")
    assert "round 2/2  small" in capsys.readouterr().out
    kernel = Kernel()
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    monkeypatch.setitem(sys.modules, "IPython.display", kernel)
    potluck.run(recipe, "notebook")
    titles = [figure.axes[0].get_title("left") for figure in kernel.shown]
    assert re.fullmatch(r"round 1 of 2, about 0:\d\d:\d\d left", titles[0])
    assert titles[-1] == "round 2 of 2"
    assert [*kernel.shown[-1].axes[0].lines[1].get_xdata()] == [1, 2]
    assert "round 2  small  validation" in capsys.readouterr().out
    shown = len(kernel.shown)
    potluck.run(recipe, "silent", display=None)
    potluck.run(recipe, "lines", display="live")
    assert len(kernel.shown) == shown
    assert "round 2/2  small" in capsys.readouterr().out
    with pytest.raises(potluck.PotluckError, match="'loud'; choose one of live, lines, none"):
        potluck.run(recipe, "loud", display="loud")


def test_a_run_can_be_looked_at(recipe, desk, monkeypatch):
    result = potluck.run(recipe, "run", display=None)
    (desk / "run").joinpath("control.half.small").mkdir()
    potluck.run({**recipe, "rounds": 1}, "run/control.half.small", display=None)
    run = potluck.read_run("run")
    assert repr(run) == "<run run>"
    frame = run.frame()
    assert frame.equals(result.frame())
    assert frame["round"].tolist() == [1, 2, 1, 2]  # of large, then of small
    own = [round.own_reward_mean for round in run.nodes[1].rounds]
    assert frame[frame.node == "small"]["reward/own"].tolist() == own
    accuracy = frame[frame["round"] == 2]["evaluation/validation"].tolist()
    assert accuracy == [result.accuracy["large"], result.accuracy["small"]]
    lines = {line.get_label(): line for line in run.plot().axes[0].lines}
    assert [*lines][:2] == ["all that were used", "large"]
    assert [*lines][-2:] == ["small", "small, control.half.small"]
    assert [*lines["small"].get_ydata()] == own
    assert run.plot()._repr_png_().startswith(b"\x89PNG")
    assert run._repr_html_() == result._repr_html_()
    assert "does sharing help?" in run._repr_html_()
    assert "Answers of the last round" not in run._repr_html_()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(potluck.PotluckError, match="frame\\(\\) needs pandas; pip install pandas"):
        run.frame()
