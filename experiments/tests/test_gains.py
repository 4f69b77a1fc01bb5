import itertools
import math

import pytest
from msgspec.structs import replace

import oracle
from made_up import curve, node, result, results, runs, suite
from potluck_experiments.costs import cost_of, up_to
from potluck_experiments.gains import gains_of, spread_of, word_of
from potluck_experiments.results import core_seconds
from potluck_experiments.statistics import MeanInterval, detectable, seeds_to_tell

PAIR = ("small", "large")
FOUR = ("small", "large", "coder", "writer")


def gains(*cells, pair="digits.size"):
    found = gains_of(results(*cells, suite=suite()))
    return {(g.model, g.than, g.measure, g.when): g for g in found.values() if g.pair == pair}


def price(*cells, pair="digits.size"):
    return cost_of(results(*cells, suite=suite()), pair)


def both(nodes):
    return dict.fromkeys(PAIR, nodes)


# What it gains


@pytest.mark.parametrize(
    "low, high, word",
    [
        (0.001, 0.5, "pays"),
        (0.0, 0.03, "no difference"),
        (-0.5, -0.001, "costs"),
        (-0.03, 0.0, "no difference"),
        (-0.03, 0.03, "no difference"),
        (-0.031, 0.01, "too wide"),
        (-0.01, 0.031, "too wide"),
    ],
)
def test_the_word_is_that_of_the_interval(low, high, word):
    assert word_of(MeanInterval((low + high) / 2, low, high, 5)) == word


def test_a_gain_is_against_alone_and_against_the_same_generation():
    cells = runs("alone", PAIR, small=[0.5, 0.6, 0.5, 0.6, 0.5], large=[0.8] * 5)
    cells += runs("half", PAIR, small=[0.4, 0.5, 0.4, 0.5, 0.4], large=[0.6] * 5)
    cells += runs("f-tis", PAIR, small=[0.5, 0.6, 0.5, 0.6, 0.5], large=[0.7] * 5)
    found = gains(*cells)
    assert len(found) == 2 * 2 * 5
    expected = {("small", "alone"): (0, "no difference"), ("small", "half"): (0.1, "pays"),
                ("large", "alone"): (-0.1, "costs"), ("large", "half"): (0.1, "pays")}  # fmt: skip
    for (model, than), (mean, word) in expected.items():
        gain = found[model, than, "greedy", "end"]
        assert gain.difference.mean == pytest.approx(mean)
        assert (gain.difference.n, gain.word, gain.pair) == (5, word, "digits.size")


def test_gains_are_told_in_every_measure():
    alone = node(curve(0.1, 0.5), out=0.4, sampled=[0.2] * 10 + [0.4] * 10)
    shared = node((0.1, *[0.1] * 5, *curve(0.1, 0.6, 5)), out=0.3, sampled=[0.25] * 10 + [0.3] * 10)
    found = gains(
        *runs("alone", PAIR, **both([alone] * 5)), *runs("f-tis", PAIR, **both([shared] * 5))
    )
    expected = {
        ("greedy", "end"): 0.1,
        ("greedy", "early"): 0.1 - oracle.early_greedy(alone),
        ("sampled", "end"): -0.1,
        ("sampled", "early"): 0.05,
        ("out-of-distribution", "end"): -0.1,
    }
    for measure, mean in expected.items():
        assert found["small", "alone", *measure].difference.mean == pytest.approx(mean), measure


def test_the_same_generation_of_four_is_a_quarter():
    cells = [
        c
        for s in ("alone", "half", "quarter")
        for c in runs(s, FOUR, **{m: [0.5] * 5 for m in FOUR})
    ]
    found = gains(*cells, *runs("f-tis", FOUR, **{m: [0.6] * 5 for m in FOUR}), pair="digits.four")
    assert {(g.model, g.than) for g in found.values()} == set(
        itertools.product(FOUR, ("alone", "quarter"))
    )


@pytest.mark.parametrize("seeds", [0, 1, 3])
def test_a_gain_of_too_few_seeds_is_none(seeds):
    cells = runs("alone", PAIR, **both([0.5] * 5))
    cells += runs("f-tis", PAIR, seeds=seeds, **both([0.7] * 5))
    for gain in gains(*cells).values():
        n = seeds if gain.than == "alone" else 0
        assert gain.word == f"{n} of 5 seeds"
        assert (gain.difference is None) == (n < 2)


@pytest.mark.parametrize("alone, word", [(0.05, "floor"), (0.9, "ceiling")])
def test_a_gain_out_of_distribution_needs_room_to_move(alone, word):
    cells = runs("alone", PAIR, **both([node(out=alone)] * 5))
    cells += runs("f-tis", PAIR, **both([node(out=0.5)] * 5))
    found = gains(*cells)
    assert found["small", "alone", "out-of-distribution", "end"].word == word
    assert found["small", "alone", "greedy", "end"].word == "no difference"


def test_a_pair_is_one_of_twins_if_all_its_names_are_one_model():
    assert suite().is_same_model("tiny", "digits.same")
    of = suite(pairs={"two": PAIR, "three": ("small", "twin", "large")})
    assert not of.is_same_model("tiny", "digits.two")
    assert not of.is_same_model("tiny", "digits.three")


# What it costs


def test_tokens_are_ratios_over_the_whole_run():
    alone = [node(tokens=t) for t in (100, 120, 80, 90, 100)]
    shared = [node(tokens=t) for t in (50, 70, 30, 50, 60)]
    large = [node(tokens=10)] * 5
    found = price(
        *runs("alone", PAIR, small=alone, large=large),
        *runs("f-tis", PAIR, small=shared, large=large),
    )
    tokens = found.tokens["small"]
    expected = oracle.geometric([(50, 100), (70, 120), (30, 80), (50, 90), (60, 100)])
    assert (tokens.mean, tokens.low, tokens.high) == pytest.approx(expected, rel=1e-3)
    assert found.tokens["large"] == MeanInterval(1, 1, 1, 5)


def test_twins_are_trained_one_after_the_other_though_they_run_once():
    pair = ("small", "twin")
    cells = runs("alone", ("small",), small=[node(seconds=3)] * 5)
    cells += runs("f-tis", pair, small=[node(seconds=2)] * 5, twin=[node(seconds=1)] * 5)
    found = price(*cells, pair="digits.same")
    assert found.core.mean == pytest.approx(60 / (60 + 60))  # a cell is 60 s
    assert set(found.tokens) == set(pair)


def of_seconds(seconds, greedy=(0.0, 0.5)):
    return replace(node(greedy, rounds=len(seconds)), seconds=tuple(seconds))


def test_a_cells_core_time_is_shared_out_over_rounds_and_nodes_as_its_wall_seconds_were():
    cell = result("f-tis", 0, {"small": of_seconds((1, 3)), "large": of_seconds((4, 12))}, cpu_s=10)
    # 20 s of wall time, so half a second of core time for each.
    assert core_seconds(cell, "small") == (0.5, 1.5)
    assert core_seconds(cell, "large") == (2, 6)
    idle = result("f-tis", 0, {"small": of_seconds((0, 0))}, cpu_s=10)
    assert core_seconds(idle, "small") == (0, 0)


def test_a_machine_that_was_busy_with_other_things_changes_no_price():
    def cells(*pace):
        small = [of_seconds((f, 2 * f)) for f in pace[:2]]
        large = [of_seconds((3 * f, f)) for f in pace[2:4]]
        both = [
            {"small": of_seconds((f, 2 * f)), "large": of_seconds((5 * f, f))} for f in pace[4:]
        ]
        return [
            *(result("alone", s, {"small": n}, cpu_s=20 + s) for s, n in enumerate(small)),
            *(result("alone", s, {"large": n}, cpu_s=30) for s, n in enumerate(large)),
            *(result("f-tis", s, n, cpu_s=40) for s, n in enumerate(both)),
        ]

    quiet, busy = price(*cells(1, 1, 1, 1, 1, 1)), price(*cells(1, 4, 0.5, 2, 3, 8))
    assert busy.core.mean == pytest.approx(40 / math.sqrt(50 * 51))
    for one, other in [
        (quiet.core, busy.core),
        (quiet.same_quality[0].core, busy.same_quality[0].core),
    ]:
        assert (one.mean, one.low, one.high) == pytest.approx((other.mean, other.low, other.high))


def test_core_time_is_that_of_the_runs_over_the_sum_of_those_alone():
    def of(setting, seed, cpu_s, *models):
        return result(setting, seed, dict.fromkeys(models, 0.5), cpu_s=cpu_s)

    cells = [of("alone", s, c, "small") for s, c in enumerate((10, 20, 30))]
    cells += [of("alone", s, c, "large") for s, c in enumerate((40, 50))]
    cells += [of("f-tis", s, c, *PAIR) for s, c in enumerate((60, 63, 70))]
    cells += [of("f-tis", 0, 15, "small", "twin"), of("f-tis", 1, 60, "small", "twin")]
    cells += [of("alone", s, 1, m) for s in (5, 6) for m in PAIR]  # more than was asked for
    cells += [of("f-tis", s, 1, *PAIR) for s in (5, 6)]
    core = price(*cells).core
    expected = oracle.geometric([(60, 50), (63, 70)])  # of seed 2 there is no large one
    assert (core.mean, core.low, core.high) == pytest.approx(expected, rel=1e-3)
    core = price(*cells, pair="digits.same").core
    assert core.mean == pytest.approx(math.sqrt(15 / 20 * 60 / 40))


def test_the_level_is_nine_tenths_of_what_alone_ends_at_in_the_mean():
    # Alone ends at .4 and .6, in the mean at .5: the level is .45.
    alone = [node((0.0, 0.4)), node((0.0, 0.6))]
    half = [node((0.0, 0.5)), node((0.0, 0.3))]
    shared = [node((0.0, 0.9)), node((0.0, 0.45))]
    cells = runs("alone", PAIR, **both(alone)) + runs("half", PAIR, **both(half))
    found = price(*cells, *runs("f-tis", PAIR, **both(shared)))
    small = {setting: r for (model, setting), r in found.reached.items() if model == "small"}
    assert list(small) == ["alone", "half", "f-tis"]
    assert found.levels["small"] == pytest.approx(0.45)
    assert small["alone"] == [math.inf, pytest.approx(20 * 0.45 / 0.6)]
    assert small["half"] == [pytest.approx(20 * 0.45 / 0.5), math.inf]
    assert small["f-tis"] == [pytest.approx(10), pytest.approx(20)]


def test_up_to_the_same_quality_together_all_go_on_until_the_last_is_there():
    def of(end, tokens, seconds):
        return replace(node((0.0, end / 2, end), rounds=4), tokens=tokens, seconds=seconds)

    alone = {"small": [of(e, (100, 200, 100, 50), (1, 2, 3, 4)) for e in (0.46, 0.5, 0.54)],
             "large": [of(0.8, (300, 10, 10, 50), (5, 1, 1, 4))] * 3}  # fmt: skip
    shared = {"small": [of(e, (50, 60, 70, 80), (2, 2, 1, 6)) for e in (0.5, 0.6, 0.9)],
              "large": [of(e, (90, 10, 10, 90), (1, 2, 2, 1)) for e in (0.9, 0.8, 1)]}  # fmt: skip
    cells = runs("alone", PAIR, **alone) + runs("f-tis", PAIR, **shared)
    found = {q.than: q for q in price(*cells).same_quality}["alone"]
    tokens, core = [], []
    for seed in range(3):
        # Straight lines: of 4 rounds, level / end.
        level = {"small": 0.45, "large": 0.72}
        stop = max(4 * level[m] / shared[m][seed].greedy[-1] for m in PAIR)
        own = [4 * level[m] / alone[m][seed].greedy[-1] for m in PAIR]
        now = oracle.bill([shared[m][seed] for m in PAIR], [stop, stop])
        then = oracle.bill([alone[m][seed] for m in PAIR], own)
        tokens.append((now[0], then[0]))
        # A cell is 60 s of core time: alone 10 of wall time for small, 11 for large; together 17.
        apart = [oracle.bill([alone[m][seed]], [s])[1] for m, s in zip(PAIR, own, strict=True)]
        core.append((now[1] * 60 / 17, apart[0] * 60 / 10 + apart[1] * 60 / 11))
    for mine, pairs in ((found.tokens, tokens), (found.core, core)):
        assert (mine.mean, mine.low, mine.high) == pytest.approx(oracle.geometric(pairs), rel=2e-3)
    assert (found.seeds, found.never, found.control_never) == (3, 0, 0)


def test_seeds_that_never_reach_the_level_are_counted_and_there_is_no_mean_without_them():
    good, flat, begun = node((0.0, 0.5)), node((0.0, 0.1)), node((0.46, 0.5))
    cells = runs("alone", PAIR, small=[good] * 5, large=[good] * 5)
    cells += runs("half", PAIR, small=[good, good, good, flat, good], large=[good] * 4 + [flat])
    cells += runs("f-tis", PAIR, small=[good, flat, good, flat, good], large=[good] * 5)
    found = price(*cells)
    against = {q.than: q for q in found.same_quality}
    assert (against["alone"].never, against["alone"].control_never) == (2, 0)
    assert (against["alone"].used, against["alone"].seeds) == (3, 5)
    assert (against["half"].never, against["half"].control_never) == (2, 2)
    assert (against["half"].used, against["half"].seeds) == (2, 5)
    assert {(q.tokens, q.core) for q in against.values()} == {(None, None)}
    small = {setting: r for (model, setting), r in found.reached.items() if model == "small"}
    assert [rounds == math.inf for rounds in small["f-tis"]] == [False, True, False, True, False]
    assert small["alone"] == pytest.approx([18] * 5)
    # Who starts at the level has no ratio either, but does reach it.
    cells = runs("alone", PAIR, **both([good] * 5))
    cells += runs("f-tis", PAIR, small=[begun] * 2 + [good] * 3, large=[good] * 5)
    (found,) = [q for q in price(*cells).same_quality if q.than == "alone"]
    assert (found.tokens, found.used, found.seeds, found.never) == (None, 3, 5, 0)


def test_what_was_not_run_has_no_price():
    found = price()
    assert (found.tokens, found.core, found.reached) == ({"small": None, "large": None}, None, {})
    assert {(q.tokens, q.core, q.seeds) for q in found.same_quality} == {(None, None, 0)}
    found = price(*runs("alone", PAIR, small=[0.5] * 5), *runs("f-tis", PAIR, **both([0.5] * 5)))
    assert (found.tokens["small"], set(found.levels)) == (None, {"small"})


def test_without_all_models_alone_there_is_no_level_to_reach():
    cells = runs("alone", PAIR, small=[0.5] * 5)
    cells += runs("half", PAIR, **both([0.5] * 5)) + runs("f-tis", PAIR, **both([0.5] * 5))
    for found in price(*cells).same_quality:
        assert (found.tokens, found.core, found.seeds, found.used) == (None, None, 0, 0)


@pytest.mark.parametrize("rounds, total", [(0, 0), (0.25, 1), (1, 4), (2.5, 4 + 6 + 4), (3, 18)])
def test_the_sum_up_to_a_round_takes_its_part_of_it(rounds, total):
    assert up_to(rounds, (4, 6, 8)) == total


# How sure one can be


def test_the_spread_is_that_of_alone_of_half_and_of_the_paired_differences():
    small, large = [0.5, 0.52, 0.48, 0.54, 0.46], [0.7] * 5
    cells = runs("alone", PAIR, small=small, large=large) + runs("alone", ("coder",), coder=[0.5])
    cells += runs("half", PAIR, small=[0.1, 0.2, 0.1, 0.2, 0.1])
    # Against alone: 0, -2, 2, -4, 4 hundredths and none; with the three others all doubled.
    cells += runs("f-tis", PAIR, **both([0.5] * 5))
    four = [0.5, 0.48, 0.52, 0.46, 0.54]
    cells += runs("f-tis", FOUR, **dict.fromkeys(FOUR, four))
    cells += runs("f-tis", ("small", "twin"), small=[0.1, 0.9, 0.1, 0.9, 0.1], twin=[0.1] * 5)
    cells += [result("alone", s, {"small": 0.9}, family="chain") for s in range(5)]
    cells += [result("alone", 5, {"small": 0.1})]  # more than was asked for
    first, second = spread_of(results(*cells, suite=suite()))
    # s = sqrt((0 + 4 + 4 + 16 + 16) / 4) / 100 = sqrt(10) / 100
    assert (first.title, first.model, first.seeds) == ("column addition", "small", 5)
    assert first.alone == pytest.approx(math.sqrt(10) / 100)
    assert first.half == pytest.approx(0.1 * math.sqrt(6 / 5 / 4))
    assert first.paired == pytest.approx(2 * math.sqrt(10) / 100)  # twins have far more
    # (2.306 + .889) sqrt(20) / 100 / 3 = .0476; of eight (2.365 + .896) .04472 / 2.828 = .0516
    assert first.needed == 9
    # (2.131 + .866) .06325 / 4 = .0474; of 15 (2.145 + .868) .06325 / 3.873 = .0492; of 14 .0512
    assert first.needed_paired == 15
    assert (second.model, second.alone, second.half, second.needed) == ("large", 0, None, 2)
    assert second.paired == pytest.approx(math.sqrt(10) / 100)


def test_differences_that_do_not_vary_ask_for_two_seeds():
    cells = runs("alone", PAIR, **both([0.5] * 5)) + runs("f-tis", PAIR, **both([0.6] * 5))
    for found in spread_of(results(*cells, suite=suite())):
        assert (found.paired, found.needed_paired) == (pytest.approx(0, abs=1e-9), 2)
    for found in spread_of(results(*runs("alone", PAIR, **both([0.5] * 5)), suite=suite())):
        assert (found.paired, found.needed_paired) == (None, None)


@pytest.mark.parametrize("seeds", [4, 5, 10, 20])
def test_the_seeds_tell_the_difference_four_times_in_five(seeds):
    assert oracle.share_told(detectable(1.0, seeds), 1.0, seeds) == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize("deviation", [0.02, 0.05, 0.1, 0.3])
def test_one_seed_less_would_not_do(deviation):
    needed = seeds_to_tell(deviation)
    assert detectable(deviation, needed) <= 0.05 < detectable(deviation, needed - 1)
