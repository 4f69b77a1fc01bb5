"""What an evaluation found, as it is printed: from plain data, which anybody may have made."""

import io
import re

from rich.cells import cell_len
from rich.console import Console

from potluck.show.terminal.evaluation import show_evaluation
from show.terminal.run_folders import HOSTILE, STEERS

WIDEST = {"value": -0.1234, "low": -0.9999, "high": 0.9999}


def estimate(value, low, high):
    return {"value": value, "low": low, "high": high}


def found(*measures, models=("some/model",), **more):
    split = {
        "split": "validation",
        "problems": 200,
        "binary": True,
        "right": "task",
        "right_in_words": "",
        "measures": list(measures),
        "unfinished": dict.fromkeys("AB"[: len(models)], 0),
        "constant": None,
        "earned_nothing": {letter: [] for letter in "AB"[: len(models)]},
        **more,
    }
    settings = {
        "max_new_tokens": 48, "samples": 0, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "seed": 3,
    }  # fmt: skip
    return {
        "models": dict(zip("AB", models, strict=False)),
        "partial": False,
        "task": {"name": "digits", "digest": "0123456789abcdef"},
        "settings": settings,
        "splits": [split],
    }


def alone(value=0.945, low=0.904, high=0.969, name="greedy"):
    return {"measure": name, "A": estimate(value, low, high)}


def paired(better, name="greedy"):
    a, b = estimate(0.5, 0.4, 0.6), estimate(0.25, 0.2, 0.3)
    return {"measure": name, "A": a, "B": b, "difference": WIDEST, "better": better}


AGREEMENT = {"both": 9, "only_a": 8, "only_b": 7, "neither": 6}


def shown(report, *, terminal=False, width=80):
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=width, legacy_windows=False)
    show_evaluation(report, console)
    return out.getvalue()


def test_one_model_has_a_value_and_no_letter_and_no_verdict():
    assert [line.rstrip() for line in shown(found(alone())).splitlines()] == [
        "digits 0123456789ab  48 new tokens at most",
        "some/model",
        "",
        "validation, 200 problems",
        "measure  value",
        "greedy   0.945 [0.904, 0.969]",
        "",
        "[...]: 95 %, over problems",
    ]


def test_one_answer_to_all_is_told_and_beside_it_a_guess_where_there_are_options():
    for blind, told in ((None, "0.270\n"), (0.25, "0.270, a guess among the options 0.250\n")):
        constant = {"answer": "B", "share": 0.27, "guess": blind}
        said = shown(found(alone(), constant=constant), width=120)
        assert f"the one answer 'B' to all of them would earn {told}" in said


def test_two_models_have_letters_their_difference_and_a_verdict_by_measure():
    report = found(
        paired("A"), paired(None, "pass@1"), paired("B", "pass@8"),
        models=("one", "two"), greedy_right=AGREEMENT,
    )  # fmt: skip
    lines = [line.rstrip() for line in shown(report).splitlines()]
    assert lines[1:3] == ["A  one", "B  two"]
    interval = "0.500 [0.400, 0.600]  0.250 [0.200, 0.300]  -0.123 [-1.000, +1.000]"
    assert f"greedy   {interval}" in lines
    assert f"pass@8   {interval}" in lines
    assert lines[-6:-2] == [
        "A is better: greedy",
        "A and B cannot be told apart: pass@1",
        "B is better: pass@8",
        "greedy right: both 9, only A 8, only B 7, neither 6",
    ]


def test_it_fits_on_80_columns_with_nothing_cut():
    report = found(paired("A", "pass@1000"), models=("one", "two"), greedy_right=AGREEMENT)
    lines = re.sub(r"\x1b\[[\d;]*m", "", shown(report, terminal=True)).splitlines()
    assert max(map(cell_len, lines)) <= 80
    interval = "0.500 [0.400, 0.600]  0.250 [0.200, 0.300]  -0.123 [-1.000, +1.000]"
    assert f"pass@1000  {interval}" in [line.rstrip() for line in lines]


def test_the_headline_says_how_samples_were_drawn():
    report = found(alone(3.0, None, None))
    assert "greedy   3.000 [-, -]" in shown(report)
    report["settings"] |= {"samples": 8, "temperature": 0.7, "top_k": 50, "top_p": 0.95}
    assert "48 new tokens at most; 8 samples at temperature 0.7, top-k 50, top-p 0.95, seed 3" in (
        shown(report, width=200)
    )


def test_what_limits_the_numbers_is_said_and_only_then():
    two = {"models": ("one", "two"), "greedy_right": AGREEMENT}
    quiet = shown(found(paired(None), **two))
    assert "not right" not in quiet
    assert "rewards are not" not in quiet
    example = {"id": "digits/1+2", "expected": "3", "text": f"{HOSTILE} the end"}
    cut = {"kind": "cut", "what": "cut off before their end", "count": 8, "examples": [example]}
    form = {"kind": "form", "what": "no tags", "count": 1, "examples": []}
    none = {"A": [], "B": [cut, form]}
    loud = shown(found(paired(None), earned_nothing=none, binary=False, **two), width=200)
    said = "B: greedy answers that are not right: 9 of 200: 8 cut off before their end; 1 in the "
    assert f"{said}wrong form (no tags)" in loud
    which = {"right": None, "right_in_words": f"no answer is called right: {HOSTILE}"}
    undecided = shown(found(alone(), earned_nothing={"A": [cut]}, **which), width=400)
    assert "greedy answers that earned nothing: 8 of 200" in undecided
    assert "no answer is called right: " in undecided
    assert not set(STEERS) & set(undecided)
    assert "  cut: digits/1+2, right is 3" in loud
    assert "the end" in loud
    assert not set(STEERS) & set(loud)
    assert "rewards are not all 0 or 1" in loud
    assert "would earn" not in loud
    constant = {"answer": "1", "share": 0.27, "guess": None}
    assert "the one answer '1' to all of them would earn 0.270" in shown(
        found(alone(), constant=constant)
    )
    alone_too = shown(found(alone(), earned_nothing={"A": [cut]}), width=200)
    assert "\ngreedy answers that are not right: 8 of 200" in alone_too


def test_names_steer_no_terminal_and_are_no_markup():
    report = found(alone(), models=(HOSTILE,))
    report["task"]["name"] = HOSTILE
    text = shown(report)
    assert not set(STEERS) & set(text)
    assert text.count("[red]boo[/red]") == 2
