"""The paper's scale: what its cells are, and what they would cost."""

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

import potluck.cli
from potluck.check.cards import OF_ITSELF
from potluck.config import Gsm8kConfig, Math500Config, as_tree, from_tree
from potluck.reproduce.cells import cells_of, make_cell
from potluck.reproduce.gpu.check import check_cells
from potluck.reproduce.gpu.hours import (
    GPUS,
    Assumed,
    Cost,
    Gpu,
    bench_of,
    cost_of,
    evaluations,
    fits,
    learning_s,
    shapes_of,
    writing_s,
)
from potluck.reproduce.reading import read_suite
from potluck.rollout import ModelError
from potluck.rollout.shape import Shape

SUITE = read_suite(Path(__file__).parents[2] / "experiments")
FAMILY = SUITE.scales["paper"].family["gsm8k"]
H200, CONSUMER = GPUS
MODELS = {
    "1b": "Qwen/Qwen2.5-1.5B",
    "3b": "Qwen/Qwen2.5-3B",
    "1b-coder": "Qwen/Qwen2.5-Coder-1.5B",
    "3b-coder": "Qwen/Qwen2.5-Coder-3B",
    "1b-lora": "Qwen/Qwen2.5-1.5B",
    "3b-lora": "Qwen/Qwen2.5-3B",
    "1b-twin": "Qwen/Qwen2.5-1.5B",
}


def cell(models, setting="f-tis"):
    return make_cell(SUITE, "paper", "gsm8k", tuple(models.split("+")), setting, 0)


def config_of(models, setting="f-tis", *changes):
    return from_tree(as_tree(cell(models, setting).config), list(changes))


def cost(models, setting="f-tis", *changes, gpu=H200, **assumed):
    config = config_of(models, setting, *changes)
    return cost_of(config, shapes_of(config), gpu, Assumed(**assumed))


# What the cells are.


def test_the_models_are_the_papers():
    assert set(FAMILY.model) == set(MODELS)
    for name, model in MODELS.items():
        (node,) = cell(name).config.node.values()
        assert node.model == model
        assert bool(node.lora) == name.endswith("-lora")
        assert node.learning_rate == (1e-4 if node.lora else 1e-6)


@pytest.mark.parametrize("pair", FAMILY.pair)
def test_every_pair_in_every_setting_is_a_run_with_the_papers_values(pair):
    models = FAMILY.pair[pair]
    for setting, chosen in SUITE.settings.items():
        made = make_cell(
            SUITE, "paper", "gsm8k", models[:1] if chosen.alone else models, setting, 3
        )
        config = made.config
        assert list(config.node) == list(made.models)
        assert (config.group_size, config.seed) == (12, 3)
        assert config.rounds == (60 if setting.endswith("-long") else 50)
        assert config.problems_per_round == 24 * chosen.problems
        assert isinstance(config.task, Gsm8kConfig)
        assert isinstance(config.out_of_distribution, Math500Config)


def test_every_figure_and_the_table_have_cells_at_this_scale():
    for experiment in SUITE.experiments:
        if experiment.figure:
            assert cells_of(SUITE, [experiment], "paper", 2), experiment.name


# What one costs, by hand.


def test_the_hours_of_the_size_pair_worked_by_hand():
    """1.5437e9 and 3.0859e9 weights, 28 and 36 layers; an H200, where launching bounds writing.

    learning    50 x 288 x 460 tokens x 8 x 4.6296e9 / (.35 x 989e12) = 708.8 s
    writing     50 x 600 steps x (28 + 36) layers x .0006 s = 1152 s
    evaluating  12 times 2 batches x 768 steps, 64 layers = 707.8 s (11 x 512 problems, 500)
    """
    found = cost("1b+3b")
    assert found.learning_s == pytest.approx(50 * 288 * 460 * 8 * 4.6296e9 / (0.35 * 989e12), 1e-4)
    assert found.writing_s == pytest.approx(1152)
    assert found.evaluating_s == pytest.approx(12 * 2 * 768 * 64 * 0.0006)
    assert found.tokens == 50 * 288 * 300
    assert found.hours == pytest.approx((708.8 + 1152 + 707.8) / 3600, 1e-4)


PLAIN = Shape(1_000_000, 10, 64, 4, 64, 32, 128, 1000, True, 0, ())
SLOW = Gpu("slow", "h200", 1e9, 1e6)
EXACT = Assumed(
    completion=100,
    prompt=50,
    learning_share=0.5,
    writing_share=0.25,
    memory_share=0.1,
    launch_s=2.0,
)


def test_a_batch_that_memory_bounds_worked_by_hand():
    """Three rows, two at a time, of 100 tokens in the mean and 200 at most: 2 x 200 steps.

    bytes       400 x 1e6 weights x 2  +  300 tokens x (3 x 2 x 32 x 10 x 2 x (50 + 50)
                + 1000 logits x (2 + 2 x 24))  =  8e8 + 300 x (384,000 + 50,000) = 930.2e6
    operations  2 x 1e6 x 3 x 150 = 900e6
    """
    node = replace_node(sampling_rows=2)
    bounded = replace(EXACT, launch_s=0)
    seconds = writing_s(node, PLAIN, SLOW, bounded, rows=3, most=200)
    assert seconds == pytest.approx(930.2e6 / 0.1e6 + 900e6 / 0.25e9)
    assert writing_s(node, PLAIN, SLOW, EXACT, rows=3, most=200) == pytest.approx(seconds)
    slow_launch = replace(EXACT, launch_s=3.0)  # 400 steps of 10 layers
    assert writing_s(node, PLAIN, SLOW, slow_launch, rows=3, most=200) == 12_000
    assert writing_s(node, PLAIN, SLOW, slow_launch, rows=4, most=200) == 12_000
    assert writing_s(node, PLAIN, SLOW, slow_launch, rows=0, most=200) == 0


def replace_node(**changes):
    (node,) = config_of("1b", "alone").node.values()
    return type(node)(**{f: getattr(node, f) for f in node.__struct_fields__} | changes)


@pytest.mark.parametrize(
    "models, recomputed, passes",
    [("1b", True, 8), ("1b", False, 6), ("1b-lora", True, 6), ("1b-lora", False, 4)],
)
def test_learning_takes_so_many_operations_a_weight_and_token(models, recomputed, passes):
    change = f"node.{models}.gradient_checkpointing={str(recomputed).lower()}"
    (node,) = config_of(models, "alone", change).node.values()
    assert learning_s(node, PLAIN, SLOW, EXACT, tokens=10) == passes * 1e6 * 10 / 0.5e9


@pytest.mark.parametrize(
    "rounds, every, times", [(50, 5, 11), (50, 7, 9), (50, 0, 1), (3, 5, 2), (5, 5, 2)]
)
def test_evaluations_are_counted_as_a_run_does_them(rounds, every, times):
    """At 0, 5 ... 45 and at the end; at 0, 7 ... 49 and at the end; only at the end."""
    changes = (f"rounds={rounds}", f"evaluation.every={every}")
    assert evaluations(config_of("1b", "alone", *changes)) == times


# What has to cost more.


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.card)
@pytest.mark.parametrize(
    "more",
    [
        {"changes": ["rounds=51"]},
        {"changes": ["problems_per_round=48"]},
        {"changes": ["objective.updates_per_round=2"]},
        {"changes": ["evaluation.every=4"]},
        {"changes": ["evaluation.problems=1024"]},
        {"changes": ["evaluation.out_of_distribution=1000"]},
        {"changes": ["evaluation.max_new_tokens=769"]},
        {"changes": ["node.1b.sampling_rows=32"]},
        {"changes": ["node.1b.gradient_checkpointing=true"]},
        {"completion": 301.0},
        {"models": "3b"},
        {"models": "1b+3b"},
    ],
    ids=str,
)
def test_more_work_takes_longer(gpu, more):
    more = {"models": "1b", "changes": [], **more}
    plain = ["node.1b.gradient_checkpointing=false"]
    before = cost("1b", "f-tis", *plain, gpu=gpu)
    models, changes = more.pop("models"), more.pop("changes")
    kept = plain if models == "1b" else []
    assert cost(models, "f-tis", *kept, *changes, gpu=gpu, **more).hours > before.hours


def test_a_card_that_is_slower_in_either_way_takes_longer_and_better_use_of_it_less_long():
    base = cost("3b", "alone", gpu=CONSUMER).hours
    for slower in ({"operations_per_s": 70e12}, {"bytes_per_s": 0.5e12}):
        assert cost("3b", "alone", gpu=replace(CONSUMER, **slower)).hours > base
    for share in ("learning_share", "writing_share", "memory_share"):
        assert cost("3b", "alone", gpu=CONSUMER, **{share: 0.9}).hours < base
    assert cost("3b", "alone", gpu=CONSUMER, launch_s=0.01).hours > base
    assert cost("3b", "alone").hours < base


def test_longer_prompts_are_more_to_read_and_leave_less_to_write():
    """The paper limits both together, to 760."""
    plain, longer = cost("1b", "alone"), cost("1b", "alone", prompt=200.0)
    assert longer.learning_s == pytest.approx(plain.learning_s * 500 / 460)
    assert longer.writing_s == pytest.approx(plain.writing_s * 560 / 600)
    assert longer.evaluating_s == plain.evaluating_s  # which has a limit of its own


def test_half_the_problems_are_half_of_learning_and_of_the_tokens_and_no_less_evaluation():
    whole, half = cost("1b", "alone"), cost("1b", "half")
    assert half.tokens == whole.tokens / 2
    assert half.learning_s == pytest.approx(whole.learning_s / 2)
    assert half.writing_s <= whole.writing_s  # as many steps, where launching bounds them
    assert half.evaluating_s == whole.evaluating_s


def test_a_cell_is_the_sum_of_its_nodes():
    one, other, pair = cost("1b", "alone"), cost("3b", "alone"), cost("1b+3b")
    assert pair.learning_s == pytest.approx(one.learning_s + other.learning_s)
    assert pair.evaluating_s == pytest.approx(one.evaluating_s + other.evaluating_s)
    assert pair.tokens == one.tokens == other.tokens  # each writes half
    assert cost("1b+3b", "horizontal").hours == pytest.approx(pair.hours)
    assert cost("1b+3b", "nois").hours == pair.hours
    total = Cost(1, 2, 3, 4) + Cost(10, 20, 30, 40)
    assert total == Cost(11, 22, 33, 44)
    assert total.hours == 99 / 3600


def test_no_completion_is_taken_to_be_longer_than_it_may_be():
    short = cost("1b", "alone", "sampling.max_new_tokens=20", completion=300.0)
    assert short.tokens == 50 * 288 * 20
    assert short.learning_s < cost("1b", "alone").learning_s


# What is printed.


def printed(cells):
    text = StringIO()
    check_cells(SUITE, cells, Console(file=text, width=200))
    return text.getvalue()


def test_each_distinct_cell_is_a_line_and_the_total_is_their_sum():
    cells = cells_of(SUITE, SUITE.experiments, "paper", 3)
    lines = printed(cells).splitlines()
    rows = [line.split() for line in lines if line.startswith("gsm8k.")]
    assert {row[0] for row in rows} == {made.name.rpartition(".")[0] for made in cells}
    assert len(rows) == len({row[0] for row in rows}) == len(cells) / 3
    (total,) = (line.split() for line in lines if line.startswith("all together"))
    assert total[2] == str(len(cells))
    for column in (3, 4):
        hours = 3 * sum(float(row[column].rstrip("*")) for row in rows)
        assert float(total[column + 1]) == pytest.approx(hours, abs=0.5 + 0.005 * len(cells))
    (fit,) = (line.split() for line in lines if line.startswith("those that fit"))
    held = 3 * sum(float(row[4]) for row in rows if not row[4].endswith("*"))
    assert float(fit[-1]) == pytest.approx(held, abs=0.5 + 0.005 * len(cells))


def test_a_cell_that_a_card_cannot_hold_is_marked_and_told_what_would_help():
    """16 bytes a weight that is trained: 3.1e9 of them alone are 50 GB."""
    text = printed([cell("3b", "alone"), cell("3b-lora", "alone")])
    full, adapter = (line.split() for line in text.splitlines() if line.startswith("gsm8k."))
    assert [figure.endswith("*") for figure in full[3:]] == [False, True]
    assert not any(figure.endswith("*") for figure in adapter[3:])
    assert "RTX 4090: 3b: does not fit: 58 of 23 GiB\n  would fit" in text
    assert "3b-lora:" not in text
    for config in (cell("3b", "alone").config, cell("3b-lora", "alone").config):
        assert fits(config, shapes_of(config), H200)
    assert "nothing was started" in text
    for assumption in ("completion 300", "prompt 160", "learning share 0.35", "factor of 2"):
        assert assumption in text


def test_nodes_that_take_turns_share_the_room_that_only_one_needs_at_a_time():
    bench = bench_of(pair := cell("1b+3b").config, shapes_of(pair))
    one, other = bench.memory("1b"), bench.memory("3b")
    assert bench.needs() == one.state + other.state + max(one.phase, other.phase) + OF_ITSELF


def test_a_model_of_ones_own_is_measured_and_one_that_is_nowhere_is_an_error():
    own = config_of("1b", "alone", "node.1b.model=builtin:digits-small")
    assert cost_of(own, shapes_of(own), H200).learning_s < cost("1b", "alone").learning_s / 1000
    lost = config_of("1b", "alone", "node.1b.model=no/such/folder/here")
    with pytest.raises(ModelError, match="no/such/folder/here"):
        shapes_of(lost)


def test_the_command_tells_it_and_starts_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["reproduce", "fig04", "--scale", "paper", "--check", "--seeds", "2"]
    done = CliRunner().invoke(potluck.cli.app, [*words, "--experiments", str(SUITE.folder)])
    assert done.exit_code == 0, done.output
    assert "\nall together" in done.output
    assert "nothing was started" in done.output
    assert list(tmp_path.iterdir()) == []
