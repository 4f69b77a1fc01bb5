import itertools

import pytest

import oracle
from made_up import PAIRS, claim, curve, experiment, node, result, results, runs, suite
from potluck_experiments.statistics import MeanInterval
from potluck_experiments.suite import ExperimentError, read_suite
from potluck_experiments.verdicts import ClaimTest, all_of, try_claims, verdict_of, verdict_of_claim

PAIR = ("small", "large")
OTHER = ("coder", "writer")
TWO_PAIRS = {"size": PAIR, "other": OTHER}
NOISE = (0.0, 0.01, -0.01, 0.02, -0.02)


def tried(*claims, cells, pairs=("digits.size",), pairs_there=PAIRS, **changes):
    figure = experiment(*claims, pairs=pairs)
    there = suite(figure, pairs=pairs_there, **changes)
    found = try_claims(figure, results(*cells, suite=there))
    return [test for tests in found.values() for test in tests]


def verdict_on(tests):
    """Of an experiment with the claims of these tests."""
    claims = {test.claim: [t for t in tests if t.claim == test.claim] for test in tests}
    return all_of([verdict_of_claim(its) for its in claims.values()])


def around(middle, seeds=5, noise=NOISE):
    return [middle + noise[s] for s in range(seeds)]


def same(*models, at=0.5, seeds=5):
    return {model: [at] * seeds for model in models}


def out(*accuracies):
    """Nodes that differ in what they reach out of distribution."""
    return [node(out=accuracy) for accuracy in accuracies]


def noted(node="each", verdict="shown", pair="p", model="m", name="c"):
    """One that is refuted lies so far from what is claimed that no number of tests changes it."""
    at = 1 if verdict == "refuted" else 0
    return ClaimTest(
        claim(node=node, id=name), pair, model, MeanInterval(at, at, at, 5), verdict, ""
    )


# The rules


@pytest.mark.parametrize("lies", ["below", "above", "within", "not below"])
@pytest.mark.parametrize("margin", [0, 3])
def test_an_interval_shows_what_holds_for_all_of_it_and_refutes_what_holds_for_none(lies, margin):
    for low, high in itertools.combinations_with_replacement(range(-6, 7), 2):
        found = verdict_of(MeanInterval((low + high) / 2, low, high, 5), lies, margin)
        assert found == oracle.verdict(low, high, lies, margin), (low, high)


# One finding


def test_the_difference_is_paired_by_seed():
    small, large = around(0.5), around(0.7)
    cells = runs("alone", PAIR, small=small, large=large)
    better = {"small": [x + 0.1 for x in small], "large": [x - 0.1 for x in large]}
    first, second = tried(claim(lies="above"), cells=cells + runs("f-tis", PAIR, **better))
    assert (first.model, first.verdict, first.reason) == ("small", "shown", "")
    assert (second.model, second.verdict) == ("large", "refuted")
    # Unpaired, seeds that lie .04 apart would leave an interval: paired, they all differ by .1.
    assert (first.difference.low, first.difference.high) == pytest.approx((0.1, 0.1))
    assert second.difference.mean == pytest.approx(-0.1)


def test_the_interval_is_that_of_the_plain_loops():
    alone, shared = [0.5, 0.52, 0.47, 0.55, 0.5], [0.6, 0.55, 0.5, 0.5, 0.61]
    cells = runs("alone", PAIR, small=alone) + runs("f-tis", PAIR, small=shared, large=[0.7] * 5)
    found = tried(claim(node="first"), cells=cells)[0].difference
    expected = oracle.interval([shared[i] - alone[i] for i in range(5)])
    assert (found.mean, found.low, found.high) == pytest.approx(expected, abs=1e-4)
    assert found.n == 5


def test_seeds_are_paired_in_whatever_order_the_cells_come():
    cells = runs("alone", PAIR, small=around(0.5), large=around(0.7))
    cells += runs("f-tis", PAIR, small=around(0.5), large=around(0.7))[::-1]
    assert all(f.difference.low == f.difference.high == 0 for f in tried(claim(), cells=cells))


def test_an_interval_that_lies_across_the_line_is_too_wide():
    cells = runs("alone", PAIR, **same(*PAIR))
    cells += runs("f-tis", PAIR, small=[0.4, 0.6, 0.5, 0.7, 0.3], large=[0.5] * 5)
    wide, narrow = tried(claim(), cells=cells)
    assert (wide.verdict, wide.reason) == ("inconclusive", "interval too wide")
    assert (narrow.verdict, narrow.reason) == ("shown", "")


@pytest.mark.parametrize("seeds", [0, 1, 4])
def test_fewer_seeds_than_the_scale_asks_for_are_said(seeds):
    cells = runs("alone", PAIR, **same(*PAIR))
    if seeds:
        cells += runs("f-tis", PAIR, **same(*PAIR, seeds=seeds))
    for found in tried(claim(), cells=cells):
        assert (found.verdict, found.reason) == ("inconclusive", f"{seeds} of 5 seeds")
        assert (found.difference is None) == (seeds < 2)


def test_seeds_count_only_where_both_settings_have_them():
    alone, shared = runs("alone", PAIR, **same(*PAIR)), runs("f-tis", PAIR, **same(*PAIR))
    cells = [c for c in alone if c.seed != 0] + [c for c in shared if c.seed != 4]
    assert {f.reason for f in tried(claim(), cells=cells)} == {"3 of 5 seeds"}
    cells = [c for c in alone if c.seed != 0] + [c for c in shared if c.seed != 1]
    assert {f.reason for f in tried(claim(), cells=cells, seeds=3)} == {"1 of 3 seeds"}
    cells = [c for c in alone if c.seed < 3] + shared
    assert {f.verdict for f in tried(claim(), cells=cells, seeds=3)} == {"shown"}


def test_seeds_beyond_those_asked_for_change_no_verdict():
    cells = runs("alone", PAIR, seeds=9, **same(*PAIR, seeds=9))
    late = [*[0.5] * 5, 0.9, 0.9, 0.9, 0.9]
    cells += runs("f-tis", PAIR, seeds=9, small=late, large=late)
    assert {(f.verdict, f.difference.n) for f in tried(claim(), cells=cells)} == {("shown", 5)}


def test_a_model_that_is_full_cannot_refute_that_it_rises():
    def of(alone, shared, **changes):
        cells = runs("alone", PAIR, **same(*PAIR, at=alone))
        cells += runs("f-tis", PAIR, **same(*PAIR, at=shared))
        return {(f.verdict, f.reason) for f in tried(claim(**changes), cells=cells)}

    assert of(0.96, 0.96, lies="above", margin=0) == {("inconclusive", "ceiling")}
    assert of(0.94, 0.94, lies="above", margin=0) == {("refuted", "")}
    assert of(0.1, 0.1, lies="above", margin=0, measure="sampled") == {("refuted", "")}
    assert of(0.98, 0.97) == {("shown", "")}  # it could have been seen to fall, and did not
    assert of(0.98, 0.8, lies="below") == {("shown", "")}


def test_cells_from_different_base_models_allow_no_verdict():
    cells = runs("alone", PAIR, **same(*PAIR)) + runs("f-tis", PAIR, **same(*PAIR))
    other = node(curve(0.1, 0.5), base="another")
    cells[-1] = result("f-tis", 4, {"small": other, "large": cells[-1].node["large"]})
    found = {f.model: (f.verdict, f.reason) for f in tried(claim(), cells=cells)}
    assert found == {"small": ("inconclusive", "different base models"), "large": ("shown", "")}


def in_the_mean(cells, **changes):
    over = claim(over="mean of pairs", lies="above", margin=0.0, **changes)
    return tried(over, cells=cells, pairs=("digits.size", "digits.other"), pairs_there=TWO_PAIRS)


def test_in_the_mean_of_pairs_one_that_loses_is_made_up_for_by_another():
    cells = runs("alone", PAIR, small=[0.3] * 5, large=[0.6] * 5)
    cells += runs("f-tis", PAIR, small=around(0.25), large=[0.6] * 5)  # the weaker: -.05
    cells += runs("alone", OTHER, coder=[0.3] * 5, writer=[0.6] * 5)
    cells += runs("f-tis", OTHER, coder=around(0.45), writer=[0.5] * 5)  # the weaker: +.15
    (found,) = in_the_mean(cells, node="weaker")
    assert (found.pair, found.model, found.verdict) == ("digits", "weaker", "shown")
    assert found.difference.mean == pytest.approx(0.05)
    (found,) = in_the_mean(cells, node="stronger")
    assert (found.verdict, found.difference.mean) == ("refuted", pytest.approx(-0.05))


def test_a_base_pair_is_one_observation_whatever_its_models_and_seeds_do():
    cells = runs("alone", PAIR, small=[0.3] * 5, large=[0.6] * 5)
    cells += runs("f-tis", PAIR, small=around(0.35), large=around(0.63))  # +.04
    cells += runs("alone", OTHER, coder=[0.3] * 5, writer=[0.6] * 5)
    cells += runs("f-tis", OTHER, coder=around(0.36), writer=around(0.66))  # +.06
    over = claim(over="base pairs", lies="above", margin=0.0)
    both = {"pairs": ("digits.size", "digits.other"), "pairs_there": TWO_PAIRS}
    (found,) = tried(over, cells=cells, **both)
    half = 12.706 * 0.01  # t of one degree of freedom, times the standard error of .04 and .06
    assert found.difference.low == pytest.approx(0.05 - half, abs=1e-4)
    assert (found.verdict, found.model) == ("inconclusive", "mean of 2 base pairs")
    (less,) = tried(over, cells=cells[1:], **both)
    assert (less.verdict, less.difference) == ("inconclusive", None)


def test_in_the_mean_of_pairs_those_at_the_floor_are_left_out_and_missing_seeds_are_told():
    def cells(setting, small, coder):
        high = out(*[0.7] * 5)
        return runs(setting, PAIR, small=out(*small), large=high) + runs(
            setting, OTHER, coder=out(*coder), writer=high
        )

    measured = {"node": "weaker", "measure": "out-of-distribution"}
    floored = cells("alone", [0.02] * 5, [0.3] * 5) + cells("f-tis", [0.5] * 5, [0.4] * 5)
    (found,) = in_the_mean(floored, **measured)
    assert found.difference.mean == pytest.approx(0.1)
    assert (found.verdict, found.reason) == ("shown", "1 of 2 pairs left out: floor")
    both = cells("alone", [0.02] * 5, [0.03] * 5) + cells("f-tis", [0.5] * 5, [0.4] * 5)
    (found,) = in_the_mean(both, **measured)
    assert (found.verdict, found.difference) == ("inconclusive", None)
    assert found.reason == "2 of 2 pairs left out: floor"
    (found,) = in_the_mean([c for c in floored if c.seed or "coder" not in c.node], **measured)
    assert (found.verdict, found.reason) == ("inconclusive", "4 of 5 seeds")
    (found,) = in_the_mean([c for c in floored if "coder" not in c.node], **measured)
    assert (found.verdict, found.reason) == ("inconclusive", "0 of 5 seeds")


def test_only_the_models_own_cells_count():
    cells = runs("alone", PAIR, **same(*PAIR)) + runs("f-tis", PAIR, **same(*PAIR))
    others = [result("f-tis", s, {"small": 0.9, "coder": 0.9}) for s in range(5)]
    others += [result("f-tis", s, {"small": 0.9, "large": 0.9}, family="chain") for s in range(5)]
    others += [result("alone", s, {"small": 0.9}, scale="paper") for s in range(5)]
    for found in tried(claim(), cells=cells + others):
        assert found.difference == MeanInterval(0, 0, 0, 5)


def test_a_twin_alone_is_the_model_that_it_is_a_twin_of():
    cells = runs("alone", ("small",), small=around(0.5))
    cells += runs("f-tis", ("small", "twin"), small=around(0.5), twin=around(0.6))
    found = tried(claim(), cells=cells, pairs=("digits.same",))
    assert [f.model for f in found] == ["small", "twin"]
    assert [f.difference.mean for f in found] == pytest.approx([0, 0.1])


def test_two_settings_that_run_together_are_compared_in_the_pairs_cells():
    cells = runs("f-tis", PAIR, **same(*PAIR)) + runs(
        "nois", PAIR, small=[0.3] * 5, large=[0.4] * 5
    )
    found = tried(claim(setting="nois", than="f-tis", lies="below"), cells=cells)
    assert [f.difference.mean for f in found] == pytest.approx([-0.2, -0.1])


def test_an_experiment_that_is_not_run_at_a_scale_has_no_tests():
    figure = experiment(claim())
    tests = try_claims(figure, results(suite=suite(figure), scale="paper"))
    assert list(tests.values()) == [[]]
    assert verdict_on([]) == "inconclusive"


@pytest.mark.parametrize(
    "alone, reason", [(0.09, "floor"), (0.1, ""), (0.8, ""), (0.81, "ceiling")]
)
def test_out_of_distribution_needs_room_to_move(alone, reason):
    cells = runs("alone", PAIR, small=out(*[alone] * 5))
    cells += runs("f-tis", PAIR, small=out(*[0.5] * 5), large=out(*[0.5] * 5))
    about = claim(measure="out-of-distribution", node="first", lies="above", margin=0)
    (found,) = tried(about, cells=cells)
    assert found.reason == reason
    assert found.verdict == ("inconclusive" if reason else "shown" if alone < 0.5 else "refuted")
    assert found.difference.mean == pytest.approx(0.5 - alone)


def test_in_distribution_has_no_floor():
    cells = runs("alone", PAIR, **same(*PAIR, at=0.02)) + runs("f-tis", PAIR, **same(*PAIR, at=0.9))
    assert {f.verdict for f in tried(claim(lies="above"), cells=cells)} == {"shown"}


def test_too_few_seeds_are_said_before_the_floor():
    cells = runs("alone", PAIR, small=out(0.0, 0.0)) + runs(
        "f-tis", PAIR, small=out(0.5, 0.5), large=out(0.5, 0.5)
    )
    about = claim(measure="out-of-distribution", node="first")
    assert tried(about, cells=cells)[0].reason == "2 of 5 seeds"


def test_early_and_sampled_are_read_from_the_curves():
    late = node(curve(0.1, 0.1, 6) + curve(0.2, 0.5, 5), sampled=[0.1] * 10 + [0.6] * 10)
    soon = node(curve(0.1, 0.5, 6) + (0.5,) * 5, sampled=[0.4] * 10 + [0.6] * 10)
    cells = runs("alone", PAIR, small=[soon] * 5, large=[soon] * 5)
    cells += runs("f-tis", PAIR, small=[late] * 5, large=[late] * 5)
    for measure, when, expected in (
        ("greedy", "end", 0.0),
        ("greedy", "early", 0.1 - (0.18 + 0.26 + 0.34 + 0.42 + 0.5) / 5),
        ("sampled", "end", 0.0),
        ("sampled", "early", -0.3),
    ):
        found = tried(claim(node="first", measure=measure, when=when), cells=cells)
        assert found[0].difference.mean == pytest.approx(expected)


# Whom a claim is about


def four(**ends):
    models = ("small", "large", "coder", "writer")
    alone = {m: [e] * 5 for m, e in zip(models, (0.4, 0.7, 0.2, 0.5), strict=True)} | ends
    return runs("alone", models, **alone) + runs("f-tis", models, **same(*models))


@pytest.mark.parametrize(
    "whose, models",
    [
        ("each", ["small", "large", "coder", "writer"]),
        ("any", ["small", "large", "coder", "writer"]),
        ("first", ["small"]),
        ("second", ["large"]),
        ("weaker", ["coder"]),
        ("stronger", ["large"]),
        ("second minus first", ["large minus small"]),
    ],
)
def test_a_claim_is_about_the_models_that_it_names(whose, models):
    found = tried(claim(node=whose), cells=four(), pairs=("digits.four",))
    assert [f.model for f in found] == models


def test_of_equal_models_the_first_is_the_weaker_and_the_last_the_stronger():
    cells = runs("alone", PAIR, **same(*PAIR)) + runs("f-tis", PAIR, **same(*PAIR))
    assert [tried(claim(node=n), cells=cells)[0].model for n in ("weaker", "stronger")] == [*PAIR]


def test_weaker_is_who_is_weaker_in_the_measure_of_the_claim():
    cells = runs("alone", PAIR, small=[node(curve(0.1, 0.4), out=0.6)] * 5,
                 large=[node(curve(0.1, 0.7), out=0.2)] * 5)  # fmt: skip
    cells += runs("f-tis", PAIR, **same(*PAIR))
    assert tried(claim(node="weaker"), cells=cells)[0].model == "small"
    about = claim(node="weaker", measure="out-of-distribution")
    assert tried(about, cells=cells)[0].model == "large"


def test_who_is_weaker_is_said_by_the_mean_over_the_seeds_that_all_have():
    # Seed 0 says large; the mean over seeds 0 to 4 says small; seed 5, which large lacks, large.
    small, large = [0.6, 0.4, 0.4, 0.4, 0.4, 9.9], [0.5] * 5
    cells = runs("alone", PAIR, seeds=6, small=small) + runs("alone", PAIR, large=large)
    cells += runs("f-tis", PAIR, **same(*PAIR))
    assert tried(claim(node="weaker"), cells=cells)[0].model == "small"


def test_who_is_weaker_cannot_be_told_without_cells():
    cells = runs("alone", PAIR, small=[0.5] * 5) + runs("f-tis", PAIR, **same(*PAIR))
    (found,) = tried(claim(node="weaker"), cells=cells)
    assert (found.model, found.difference) == ("weaker", None)
    assert (found.verdict, found.reason) == ("inconclusive", "0 of 5 seeds")


def test_second_minus_first_is_a_difference_of_differences():
    cells = runs("alone", PAIR, small=around(0.5), large=around(0.8))
    cells += runs("f-tis", PAIR, small=around(0.45), large=around(0.6))
    (found,) = tried(claim(node="second minus first", lies="below", margin=0.1), cells=cells)
    assert found.difference.mean == pytest.approx(-0.2 - -0.05)
    assert (found.verdict, found.difference.n) == ("shown", 5)


def test_second_minus_first_needs_both_models_seeds():
    cells = runs("alone", PAIR, small=[0.5] * 3) + runs("alone", PAIR, large=[0.5] * 5)
    cells += runs("f-tis", PAIR, **same(*PAIR))
    (found,) = tried(claim(node="second minus first"), cells=cells)
    assert (found.reason, found.difference.n) == ("3 of 5 seeds", 3)


# From tests to a verdict


def test_of_many_tests_one_refutes_a_claim_only_if_it_would_among_as_many():
    # above 0; the interval ends at -.001, which among eight tests it would not.
    near = ClaimTest(claim(lies="above", margin=0), "p", "m",
                   MeanInterval(-0.05, -0.099, -0.001, 5),
                   "refuted", "")  # fmt: skip
    far = ClaimTest(claim(lies="above", margin=0), "p", "m",
                   MeanInterval(-0.5, -0.599, -0.401, 5),
                  "refuted", "")  # fmt: skip
    shown = ClaimTest(
        claim(lies="above", margin=0), "p", "n", MeanInterval(1, 1, 1, 5), "shown", ""
    )
    assert verdict_on([near]) == "refuted"
    assert verdict_on([near, *[shown] * 7]) == "inconclusive"
    assert verdict_on([far, *[shown] * 7]) == "refuted"


def test_every_model_of_every_pair_has_to_show_a_claim():
    assert verdict_on([noted(), noted(model="n"), noted(pair="q")]) == "shown"
    assert verdict_on([noted(), noted(pair="q", verdict="inconclusive")]) == "inconclusive"
    wide = noted(verdict="inconclusive")
    assert verdict_on([noted(), wide, noted(verdict="refuted", pair="q")]) == "refuted"


@pytest.mark.parametrize(
    "verdicts", [*itertools.product(("shown", "refuted", "inconclusive"), repeat=2)]
)
def test_any_model_is_enough_where_a_claim_says_any(verdicts):
    found = verdict_on([noted("any", v, model=str(i)) for i, v in enumerate(verdicts)])
    if "shown" in verdicts:
        assert found == "shown"
    else:
        assert found == ("refuted" if set(verdicts) == {"refuted"} else "inconclusive")


def test_any_model_is_meant_within_each_pair():
    one = [noted("any", "shown", "p", "a"), noted("any", "refuted", "p", "b")]
    none = [noted("any", "refuted", "q", "a"), noted("any", "refuted", "q", "b")]
    assert verdict_on(one) == "shown"
    assert verdict_on(one + none) == "refuted"
    assert verdict_on([*one, noted("any", "inconclusive", "q")]) == "inconclusive"


def test_an_experiment_is_shown_if_all_its_claims_are():
    shown, refuted = noted(name="a"), noted(name="b", verdict="refuted")
    assert verdict_on([shown, noted(name="b")]) == "shown"
    assert verdict_on([shown, refuted]) == "refuted"
    assert verdict_on([shown, noted(name="b", verdict="inconclusive")]) == "inconclusive"
    some = [noted("any", "shown", model="a", name="b"), noted("any", "refuted", name="b")]
    assert verdict_on([shown, *some]) == "shown"


# What a suite refuses


def test_a_claim_about_out_of_distribution_early_is_refused(tmp_path):
    (tmp_path / "fig01").mkdir()
    for name, text in {
        "settings.toml": '[alone]\ntitle = "a"\nalone = true\n[f-tis]\ntitle = "f"\n',
        "tiny.toml": "family = {}\n",
        "drawn.toml": "family = {}\n",
        "paper.toml": "family = {}\n",
        "fig01/experiment.toml": 'title = "t"\nfigure = "1"\nsettings = ["alone", "f-tis"]\n'
        "pairs = {}\n",
        "fig01/expected.toml": '[[claim]]\nid = "c"\ntext = "t"\nsetting = "f-tis"\n'
        'than = "alone"\nmeasure = "out-of-distribution"\nwhen = "early"\nlies = "above"\n',
    }.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(ExperimentError, match="'c' is about out-of-distribution accuracy early"):
        read_suite(tmp_path)
    expected = tmp_path / "fig01/expected.toml"
    expected.write_text(expected.read_text().replace("early", "end"))
    assert read_suite(tmp_path).experiments[0].claims[0].when == "end"
