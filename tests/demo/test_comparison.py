import io

import pytest
from rich.console import Console

from display.run_folders import HOSTILE, STEERS, summary
from potluck.demo.report import compare, verdict
from potluck.demo.run import demo_table


def of(alone, nois, f_tis):
    curves = {"alone": [0.3, alone], "nois": [0.3, nois], "f-tis": [0.3, f_tis]}
    return verdict({"eval_rounds": [0, 1], "nodes": {"n": curves}})[0]


def table(of_summary):
    out = io.StringIO()
    console = Console(file=out, width=80)
    console.print(demo_table(of_summary, console))
    return out.getvalue()


def test_the_verdict_is_computed_from_the_ends():
    assert of(0.8, 0.44, 0.79) == (
        "Naive sharing (NoIS) cost `n` 0.36 of accuracy; F-TIS ended 0.01 below alone."
    )
    assert of(0.5, 0.75, 0.625) == (
        "Naive sharing (NoIS) gained `n` 0.25 of accuracy; F-TIS ended 0.12 above alone."
    )
    assert of(0.5, 0.5, 0.5) == (
        "Naive sharing (NoIS) left `n` level with learning alone; F-TIS ended level with alone."
    )


def test_the_verdict_is_the_difference_of_the_numbers_that_the_table_shows():
    # 0.804 and 0.796 are both shown as 0.80; a difference of 0.01 could not be checked.
    assert of(0.804, 0.796, 0.804).startswith("Naive sharing (NoIS) left `n` level")


def test_without_a_round_there_is_no_verdict():
    curves = {"alone": [0.3], "nois": [0.3], "f-tis": [0.3]}
    told = verdict({"eval_rounds": [0], "nodes": {"a": curves, "b": curves}})
    assert told == ["No round was trained, so there is nothing to compare yet."]


def test_a_method_that_was_not_run_is_not_judged():
    told = verdict(
        {
            "eval_rounds": [0, 1],
            "nodes": {"a": {"alone": [0, 0.5], "f-tis": [0, 0.75]}, "b": {"nois": [0, 1]}},
        }
    )
    assert told == [
        "`a` with F-TIS ended 0.25 above alone.",
        "`b` was not trained both alone and with others: nothing to compare.",
    ]


@pytest.mark.parametrize(
    ("curve", "message"),
    [
        ([0.3], "has 1 values for 3 evaluations"),
        ([0.3, 0.4, 1.5], "expected shares"),
        ([0.3, float("nan"), 0.5], "expected shares"),
    ],
)
def test_a_curve_that_cannot_be_is_refused(curve, message):
    with pytest.raises(ValueError, match=message):
        compare(summary(nodes={"columns": {"alone": curve}}))


def test_a_summary_without_nodes_is_refused():
    with pytest.raises(ValueError, match="no nodes"):
        compare(summary(nodes={}))


def test_methods_stand_in_one_order_and_unknown_ones_last():
    nodes = {"a": {"mine": [0, 0, 0], "f-tis": [0, 0, 0]}, "b": {"alone": [0, 0, 0]}}
    assert compare(summary(nodes=nodes)).methods == ("alone", "f-tis", "mine")


def test_the_table_has_the_start_and_the_end_of_each_method():
    lines = [line.split() for line in table(summary()).splitlines()]
    assert ["node", "start", "alone", "NoIS", "F-TIS"] in lines
    assert ["columns", "0.30", "0.80", "0.44", "0.79"] in lines
    assert ["terse", "0.20", "0.70", "0.75", "0.70"] in lines


def test_a_node_without_a_method_has_a_dash_in_the_table():
    nodes = {"a": {"alone": [0, 0, 0.5]}, "b": {"nois": [0, 0, 0.25]}}
    lines = [line.split() for line in table(summary(nodes=nodes)).splitlines()]
    assert ["a", "0.00", "0.50", "-"] in lines
    assert ["b", "0.00", "-", "0.25"] in lines


def test_hostile_names_are_text_in_the_table():
    shown = table(summary(nodes={HOSTILE: {HOSTILE: [0, 0, 0]}}))
    assert "[red]boo[/red]" in shown
    assert not set(STEERS) & set(shown)
