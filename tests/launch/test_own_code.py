"""A loss, a weight and rewards of one's own: code of a recipe, in whole runs."""

import json
import multiprocessing
from pathlib import Path

import pytest

import tiny
from launch.runs import left_by, lines
from potluck.builder.objective import load_loss, load_weight
from potluck.builder.plan import check, plan_cost
from potluck.config import ConfigError
from potluck.launch.in_process import run
from potluck.tasks import TaskError
from potluck.types import RunFolderError

LOSSES = """\
import torch
from potluck.objective.losses import no_is_loss, mean_of


def mine(logp_BT, logp_start_BT, logp_gen_BT, advantage_B, mask_BT, options):
    return no_is_loss(logp_BT, logp_start_BT, logp_gen_BT, advantage_B, mask_BT, options)


def successes(logp_BT, logp_start_BT, logp_gen_BT, advantage_B, mask_BT, options):
    parts_BT = torch.where(mask_BT, -logp_BT * advantage_B.clamp(min=0).unsqueeze(1), 0.0)
    return mean_of(parts_BT, mask_BT, options.loss_type)


def breaks(*given):
    return given[0].no_such_thing


def two_numbers(*given):
    return given[0].sum(dim=1)


def constant(*given):
    return given[1].sum()


zahl = 3
"""
WEIGHTS = """\
import torch
from potluck.objective.weights import row_weight


def of_the_whole(rows, options):
    return torch.where(rows.own_B, 1.0, 1 / len(rows.texts))


@row_weight
def of_a_row(rows, options):
    return torch.where(rows.own_B, 1.0, 0.5)


def endless(rows, options):
    return rows.likelihood_B / 0.0


def breaks(rows, options):
    return rows.no_such_thing
"""
FINE = {"loss": "losses.py:mine", "weight": "weights.py:of_a_row"}
LOADS = {"loss": load_loss, "weight": load_weight}


@pytest.fixture
def recipe(tiny_models):
    return lambda *overrides: tiny.recipe(tiny_models, "rounds=2", *overrides)


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("losses.py").write_text(LOSSES)
    Path("weights.py").write_text(WEIGHTS)
    return tmp_path


def test_a_copy_of_a_built_in_loss_has_its_bits_and_another_one_not(recipe, own):
    found = []
    for at, loss in enumerate(("", "losses.py:mine", "losses.py:successes")):
        config = recipe("objective.method=f-nois", f"objective.loss='{loss}'")
        run(config, own / f"{at}", trust_code=True)
        found.append(left_by(own / f"{at}", "small", 2)[2])
    built_in, mine, successes = found
    assert mine == built_in != successes


@pytest.mark.parametrize("name", ["of_the_whole", "of_a_row"])
def test_a_weight_of_ones_own_decides_what_is_taken(recipe, own, name):
    weight = f"objective.weight=weights.py:{name}", "objective.habit_test=false"
    run(recipe("objective.method=lws", "rounds=3", *weight), own / "run", trust_code=True)
    taken = [
        source["success_weight"]
        for line in lines(own / "run", "small")
        for author, source in line["sources"].items()
        if author == "large" and source["success_weight"] is not None
    ]
    rows = lines(own / "run", "small")[0]["completions"]
    assert taken
    assert taken == pytest.approx([1 / rows if name == "of_the_whole" else 0.5] * len(taken))


@pytest.mark.parametrize("key", FINE)
def test_code_is_not_imported_unless_it_is_trusted(recipe, own, key):
    for file in ("losses.py", "weights.py"):
        Path(file).write_text("open('imported', 'w')\n")
    config = recipe("objective.method=lws", f"objective.{key}={FINE[key]}")
    with pytest.raises(ConfigError, match=rf"runs code, \[objective\] {key} '{FINE[key]}'; read"):
        run(config, own / "run")
    assert not (own / "run").exists()
    check(config)
    assert not Path("imported").exists()


@pytest.mark.parametrize("key, name, error, message", [
    ("loss", "losses.py:breaks", ConfigError, r"raised AttributeError: .* \(losses.py, line 15\)$"),
    ("loss", "losses.py:two_numbers", ConfigError, r"a Tensor of shape \[2\]; expected a tensor"),
    ("loss", "losses.py:constant", ConfigError, "through which gradient flows"),
    ("loss", "losses.py:zahl", TaskError, r"^\[objective\] loss 'losses.py:zahl': 'zahl' is no fu"),
    ("weight", "weights.py:breaks", ConfigError, r"AttributeError: .* \(weights.py, line 19\)$"),
    ("weight", "weights.py:endless", ConfigError, "is .*inf.* for two ordinary rows"),
])  # fmt: skip
def test_what_is_no_loss_or_weight_is_told_before_a_model_is_loaded(
    recipe, own, key, name, error, message
):
    config = recipe("objective.method=lws", f"objective.{key}={name}")
    for tried in (
        lambda: LOADS[key](config, trust_code=True),
        lambda: run(config, own / "run", trust_code=True),
        lambda: plan_cost(config, trust_code=True),
    ):
        with pytest.raises(error, match=message) as raised:
            tried()
        assert name.partition(":")[0] in str(raised.value)
    assert not (own / "run" / "small").exists()


@pytest.mark.parametrize("key", FINE)
def test_a_resumed_run_wants_the_code_that_it_had(recipe, own, key):
    code = "objective.method=lws", f"objective.{key}={FINE[key]}"
    run(recipe(*code, "rounds=1"), own / "run", trust_code=True)
    file = Path(FINE[key].partition(":")[0])
    before = file.read_text()
    file.write_text(f"{before}\n# changed\n")
    with pytest.raises(RunFolderError, match=rf"{key} of digest .*: its file has changed; put"):
        run(recipe(*code), own / "run", resume=True, trust_code=True)
    file.write_text(before)
    assert run(recipe(*code), own / "run", resume=True, trust_code=True).rounds == 2


@pytest.mark.parametrize("key, name, message", [
    *(("loss", name, "expected 'FILE.py:NAME'") for name in ("mine", ".py:f")),
    *(("weight", name, "typicality.*FILE.py:NAME") for name in ("typical", ".py:f")),
])  # fmt: skip
def test_a_name_without_a_place_is_refused(recipe, key, name, message):
    with pytest.raises(ConfigError, match=rf"\[objective\] {key} is .*{message}"):
        recipe(f"objective.{key}='{name}'")


def test_authors_send_log_probabilities_to_a_loss_that_may_read_them(recipe):
    assert not recipe("objective.method=lws").sends_logp
    assert recipe("objective.method=lws", "objective.loss=losses.py:mine").sends_logp


REWARDS = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

from helper import size


def forever():
    while True:
        pass


def limited(completions, **_):
    process = multiprocessing.get_context("fork").Process(target=forever)
    process.start()
    process.terminate()
    process.join()
    return [0.0] * len(completions)


def of_an_executor(completions, **_):
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:
        return list(pool.map(size, completions))


def of_a_pool(completions, **_):
    import helper

    with multiprocessing.get_context("fork").Pool(2) as pool:
        return pool.map(helper.size, completions)


def plain(completions, **_):
    return [-2.0 * len(text) for text in completions]
"""
NAMES = ("limited", "of_an_executor", "of_a_pool", "plain")


def test_rewards_that_start_processes_pay_in_a_run_and_leave_none(recipe, own):
    Path("deep").mkdir()
    Path("deep/main.py").write_text(REWARDS)
    Path("deep/helper.py").write_text("def size(text):\n    return float(len(text))\n")
    rewards = ", ".join(f"{{function = 'deep/main.py:{name}'}}" for name in NAMES)
    run(recipe(f"reward=[{rewards}]"), own / "run", trust_code=True)
    written = (own / "run" / "small" / "completions.jsonl").read_text().splitlines()
    paid = [json.loads(line) for line in written]
    assert len(paid) > 1
    for row in paid:
        size = float(len(row["text"]))
        assert [row[f"reward/{name}"] for name in NAMES] == [0.0, size, size, -2 * size]
    assert multiprocessing.active_children() == []
