"""A claim is tried once, on one number for each seed or base pair. Which models it is about, and by
which measure, test_numbers.py recomputes from the committed cells."""

import itertools
from statistics import mean

import pytest

import oracle
from made_up import claim, curve, experiment, node, result, results, runs, suite
from potluck_experiments.statistics import MeanInterval
from potluck_experiments.suite import ExperimentError
from potluck_experiments.verdicts import ClaimTest, holm, p_of, try_claims, verdict_of
from small_suite import EXPECTED, make_suite

PAIR = ("small", "large")
OTHER = ("coder", "writer")
BOTH = {"pairs": ("digits.size", "digits.other")}
NOISE = (0.0, 0.01, -0.01, 0.02, -0.02)


def tried(*claims, cells, pairs=("digits.size",), **changes):
    figure = experiment(*claims, pairs=pairs)
    there = suite(figure, **changes)
    return list(try_claims(figure, results(*cells, suite=there)))


def around(middle):
    return [middle + noise for noise in NOISE]


def same(*models, at=0.5, seeds=5):
    return {model: [at] * seeds for model in models}


def out(*accuracies):
    """Nodes that differ in what they reach out of distribution."""
    return [node(out=accuracy) for accuracy in accuracies]


# The rules


@pytest.mark.parametrize("lies", ["below", "above", "within", "not below"])
@pytest.mark.parametrize("margin", [0, 3])
def test_an_interval_shows_what_holds_for_all_of_it_and_refutes_what_holds_for_none(lies, margin):
    for low, high in itertools.combinations_with_replacement(range(-6, 7), 2):
        found = verdict_of(MeanInterval((low + high) / 2, low, high, 5), lies, margin)
        expected = oracle.verdict(low, high, lies, margin)
        if found != expected:  # equality needs the interval at 90 % alone
            narrow = oracle.T_95[4] / oracle.T_975[4] * (high - low) / 2
            middle = (low + high) / 2
            assert (lies in ("within", "not below"), found) == (True, "shown"), (low, high)
            assert middle - narrow >= -margin
            assert lies == "not below" or middle + narrow <= margin


@pytest.mark.parametrize("lies", ["below", "above", "within", "not below"])
def test_the_p_value_is_small_just_where_the_interval_shows_it(lies):
    wide = itertools.combinations(range(-6, 7), 2)
    cases = [(low + 0.25, high - 0.25, 3) for low, high in wide]
    cases += [(value, value, margin) for value in range(-6, 7) for margin in (0, 3)]
    for low, high, margin in cases:
        found = MeanInterval((low + high) / 2, low, high, 5)
        is_shown = verdict_of(found, lies, margin) == "shown"
        assert (p_of(found, lies, margin) <= 0.05) == is_shown, (low, high, margin)


def test_a_p_value_by_hand():
    # mean 2, s / sqrt 5 = .7071, t = 2.8284 of 4 degrees: 2.37 % above, from an integral.
    found = MeanInterval(2, 2 - 2.776445 * 0.70710678, 2 + 2.776445 * 0.70710678, 5)
    one_sided = (1 - oracle.share_within(2.82842712, 4)) / 2
    assert p_of(found, "above", 0) == pytest.approx(2 * one_sided, rel=1e-5)
    assert p_of(found, "not below", 0) == pytest.approx(one_sided, rel=1e-5)
    assert p_of(found, "below", 0) == 1
    assert p_of(found, "within", 4) == pytest.approx(one_sided, rel=1e-5)
    assert p_of(MeanInterval(1, 1, 1, 5), "above", 0) == 0


def test_holm_multiplies_the_smallest_by_all_and_none_gets_smaller_than_the_one_before():
    def with_p(p):
        return ClaimTest(experiment(), claim(), "", (), None, "shown", "", p)

    tests = [with_p(p) for p in (0.02, 0.01, 0.3, 0.012)]
    # In order: .01 x 4, .012 x 3 (but no less than .04), .02 x 2, .3 x 1.
    assert holm(tests) == pytest.approx([0.04, 0.04, 0.3, 0.04])
    assert holm([with_p(0.6), with_p(0.9)]) == [1.0, 1.0]
    assert holm([]) == []


# One finding


def test_the_difference_is_paired_by_seed_and_averaged_over_the_models():
    small, large = around(0.5), around(0.7)
    cells = runs("alone", PAIR, small=small, large=large)
    better = {"small": [x + 0.3 for x in small], "large": [x - 0.1 for x in large]}
    (found,) = tried(claim(lies="above"), cells=cells + runs("f-tis", PAIR, **better))
    # Unpaired, seeds that lie .04 apart would leave an interval: paired, they all differ by .1.
    assert found.difference[:3] == pytest.approx((0.1, 0.1, 0.1))
    assert (found.verdict, found.reason, found.difference.n) == ("shown", "", 5)
    assert [part.model for part in found.parts] == [*PAIR]
    assert [mean(part.by_seed.values()) for part in found.parts] == pytest.approx([0.3, -0.1])
    wide = runs("f-tis", PAIR, small=[0.3, 0.6, 0.5, 0.8, 0.3], large=large)
    (found,) = tried(claim(), cells=cells + wide)
    assert (found.verdict, found.reason) == ("inconclusive", "interval too wide")


def test_a_pair_may_count_from_its_first_seed_by_the_seeds_that_both_settings_have():
    cells = runs("alone", PAIR, small=[0.3, 0.9], large=[0.6, 0.9])
    cells += runs("f-tis", PAIR, small=[0.35], large=[0.63])  # +.04
    cells += runs("alone", OTHER, coder=[0.3], writer=[0.6])
    cells += runs("f-tis", OTHER, coder=[0.36], writer=[0.66])  # +.06
    some = {"unit": "base pair", "seeds": 2, "fewest": 1, **BOTH}
    (found,) = tried(claim(lies="above", margin=0), cells=cells, **some)
    half = 12.706 * 0.01  # t of one degree of freedom, times the standard error of .04 and .06
    assert found.difference.low == pytest.approx(0.05 - half, abs=1e-4)
    assert (found.verdict, found.kind, found.difference.n) == ("inconclusive", "digits", 2)
    (none,) = tried(claim(), cells=cells[:-1], **some)
    assert (none.difference, none.reason) == (None, "0 of 1 seeds")


def test_fewer_seeds_than_the_scale_asks_for_and_both_settings_have_are_said():
    alone, shared = runs("alone", PAIR, **same(*PAIR)), runs("f-tis", PAIR, **same(*PAIR))
    for without, its, told in (
        ((), [0, 1, 2, 3], "4 of 5 seeds"),
        ((), [0], "1 of 5 seeds"),
        ((), [], "0 of 5 seeds"),
        ((0,), [0, 1, 2, 3], "3 of 5 seeds"),
    ):
        cells = [c for c in alone if c.seed not in without] + [c for c in shared if c.seed in its]
        (found,) = tried(claim(), cells=cells)
        assert (found.verdict, found.reason, found.difference) == ("inconclusive", told, None)
    cells = [c for c in alone if c.seed < 3] + shared
    assert {f.verdict for f in tried(claim(), cells=cells, seeds=3)} == {"shown"}


def test_seeds_beyond_those_asked_for_change_no_verdict():
    cells = runs("alone", PAIR, seeds=9, **same(*PAIR, seeds=9))
    late = [*[0.5] * 5, 0.9, 0.9, 0.9, 0.9]
    cells += runs("f-tis", PAIR, seeds=9, small=late, large=late)
    assert {(f.verdict, f.difference.n) for f in tried(claim(), cells=cells)} == {("shown", 5)}


@pytest.mark.parametrize(
    ("alone", "shared", "about", "verdict", "reason"),
    [
        (0.96, 0.96, {"lies": "above", "margin": 0}, "inconclusive", "ceiling"),
        (0.96, 0.97, {"lies": "above", "margin": 0}, "shown", ""),  # it rose all the same
        (0.94, 0.94, {"lies": "above", "margin": 0}, "refuted", ""),
        (0.1, 0.1, {"lies": "above", "margin": 0, "measure": "sampled"}, "refuted", ""),
        (0.98, 0.97, {}, "shown", ""),  # it could have been seen to fall, and did not
        (0.98, 0.8, {"lies": "below"}, "shown", ""),
    ],
)
def test_models_that_are_full_cannot_refute_that_they_rise(alone, shared, about, verdict, reason):
    cells = runs("alone", PAIR, **same(*PAIR, at=alone))
    cells += runs("f-tis", PAIR, **same(*PAIR, at=shared))
    (found,) = tried(claim(**about), cells=cells)
    assert (found.verdict, found.reason) == (verdict, reason)


def test_cells_from_different_base_models_allow_no_verdict():
    cells = runs("alone", PAIR, **same(*PAIR)) + runs("f-tis", PAIR, **same(*PAIR))
    other = node(curve(0.1, 0.5), base="another")
    cells[-1] = result("f-tis", 4, {"small": other, "large": cells[-1].node["large"]})
    (found,) = tried(claim(), cells=cells)
    assert (found.verdict, found.reason) == ("inconclusive", "different base models")
    assert [part.missing for part in found.parts] == ["different base models", ""]


def test_only_the_models_own_cells_count():
    cells = runs("alone", PAIR, **same(*PAIR)) + runs("f-tis", PAIR, **same(*PAIR))
    others = [result("f-tis", s, {"small": 0.9, "coder": 0.9}) for s in range(5)]
    others += [result("f-tis", s, {"small": 0.9, "large": 0.9}, family="chain") for s in range(5)]
    others += [result("alone", s, {"small": 0.9}, scale="paper") for s in range(5)]
    for found in tried(claim(), cells=cells + others):
        assert found.difference == MeanInterval(0, 0, 0, 5)


@pytest.mark.parametrize(
    "alone, reason", [(0.09, "floor"), (0.1, ""), (0.8, ""), (0.81, "ceiling")]
)
def test_out_of_distribution_needs_room_to_move(alone, reason):
    cells = runs("alone", PAIR, small=out(*[alone] * 5))
    cells += runs("f-tis", PAIR, small=out(*[0.5] * 5), large=out(*[0.5] * 5))
    about = claim(measure="out-of-distribution", node="first", lies="above", margin=0)
    (found,) = tried(about, cells=cells)
    assert found.reason == (f"1 of 1 models left out: {reason}" if reason else "")
    assert found.verdict == ("inconclusive" if reason else "shown" if alone < 0.5 else "refuted")
    assert (found.difference is None) == bool(reason)


def test_models_without_room_are_left_out_and_the_others_decide():
    def cells(setting, small, coder):
        high = out(*[0.7] * 5)
        return runs(setting, PAIR, small=out(*[small] * 5), large=high) + runs(
            setting, OTHER, coder=out(*[coder] * 5), writer=high
        )

    about = claim(node="weaker", measure="out-of-distribution", lies="above", margin=0.0)
    floored = cells("alone", 0.02, 0.3) + cells("f-tis", 0.5, 0.4)
    (found,) = tried(about, cells=floored, **BOTH)
    assert found.difference.mean == pytest.approx(0.1)
    assert (found.verdict, found.reason) == ("shown", "1 of 2 models left out: floor")
    for left, told in (({1, 2, 3, 4}, "4 of 5 seeds"), (set(), "0 of 5 seeds")):
        some = [c for c in floored if "coder" not in c.node or c.seed in left]
        (found,) = tried(about, cells=some, **BOTH)
        assert (found.verdict, found.reason) == ("inconclusive", told)


def test_weaker_is_the_weaker_in_the_measure_of_the_claim():
    cells = runs("alone", PAIR, small=[node(curve(0.1, 0.4), out=0.6)] * 5,
                 large=[node(curve(0.1, 0.7), out=0.2)] * 5)  # fmt: skip
    cells += runs("f-tis", PAIR, **same(*PAIR))
    about = claim(node="weaker", measure="out-of-distribution")
    untold = [cell for cell in cells if cell.setting != "alone"]
    for asked, its, model in (
        (claim(node="weaker"), cells, "small"),
        (about, cells, "large"),
        (about, untold, "weaker"),  # it is not known
    ):
        (found,) = tried(asked, cells=its)
        assert [part.model for part in found.parts] == [model]


def test_a_claim_about_a_kind_that_its_experiment_lacks_is_refused(tmp_path):
    lacking = {"fig04_size/expected.toml": EXPECTED + 'kinds = ["chain"]\n'}
    with pytest.raises(ExperimentError, match=r"'ends' names the family 'chain'; there are digits"):
        make_suite(tmp_path, others=lacking)
