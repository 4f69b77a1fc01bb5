import io

from rich.console import Console

from demo.results import outcome, outcomes, result
from potluck.demo.report import verdict
from potluck.demo.run import demo_table


def of(alone, half, lws):
    (sentence,) = verdict(result(nodes={"n": outcomes(alone, half, lws)}))
    return sentence


def table(of_result):
    out = io.StringIO()
    console = Console(file=out, width=80)
    console.print(demo_table(of_result, console))
    return [" ".join(line.split()) for line in out.getvalue().splitlines()]


def test_the_second_half_of_an_odd_number_of_rounds_has_the_middle_one():
    # As in the experiments: 25 rounds have 13 in their second half.
    assert outcome(0, sampled=(0.0, 0.25, 0.5, 1.0, 0.75)).late == 0.75
    assert outcome(0, sampled=(0.5,)).late == 0.5


def test_the_verdict_is_computed_from_the_second_halves():
    wrote = "it wrote 48 completions, alone 96."
    assert of(0.8, 0.7, 0.81) == f"`n` with LWS: 0.01 above alone, 0.11 above half; {wrote}"
    assert of(0.75, 0.25, 0.5) == f"`n` with LWS: 0.25 below alone, 0.25 above half; {wrote}"
    assert of(0.5, 0.5, 0.5) == f"`n` with LWS: level with alone, level with half; {wrote}"


def test_the_verdict_is_the_difference_of_the_numbers_that_the_table_shows():
    # 0.804 and 0.796 are both shown as 0.80; a difference of 0.01 could not be checked.
    assert "level with alone, 0.01 above half" in of(0.804, 0.794, 0.796)


def test_there_is_a_sentence_for_each_node():
    assert [sentence.split()[0] for sentence in verdict(result())] == ["`large`", "`small`"]


def test_the_table_has_a_row_for_each_node_under_each_setting():
    assert table(result()) == [
        "node setting written sampled reward greedy four digits",
        "large alone 96 0.80 1.00 0.75",
        "large half 48 0.70 0.50 0.75",
        "large LWS 48 0.81 1.00 -",
        "small alone 96 0.50 1.00 0.75",
        "small half 48 0.50 0.50 0.75",
        "small LWS 48 0.25 1.00 -",
    ]


def test_thousands_can_be_read():
    shown = table(result(nodes={"n": outcomes() | {"lws": outcome(0.5, written=7200)}}))
    assert any(row.startswith("n LWS 7,200 ") for row in shown)
