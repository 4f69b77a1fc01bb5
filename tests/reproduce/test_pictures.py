import struct
from dataclasses import replace

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.lines import Line2D

from potluck.dashboard.style import save_small
from potluck.reproduce import page
from potluck.reproduce.page.curves import _figure as curves_figure
from potluck.reproduce.page.curves import curve_of, draw_curves, smoothed
from potluck.reproduce.page.dots import _figure as dots_figure
from potluck.reproduce.page.finished import of_results
from potluck.reproduce.page.forest import COLOURS, HOLDS, bands_of, draw_forest
from potluck.reproduce.page.forest import _figure as forest_figure
from potluck.reproduce.page.legend import styles_of
from potluck.reproduce.result import ROOMS
from potluck.reproduce.suite import Setting
from reproduce import oracle
from reproduce.made_up import claim, experiment, node, results, runs, suite

PAIR = ("small", "large")


def there(*claims, shift=0.1, pairs=("digits.size",), pair=PAIR):
    figure = experiment(*(claims or (claim(),)), pairs=pairs)
    ends = {m: [0.5, 0.52, 0.48, 0.51, 0.49] for m in pair}
    higher = {m: [e + shift for e in ends[m]] for m in pair}
    found = results(*runs("alone", pair, **ends), *runs("f-tis", pair, **higher))
    return of_results(suite(figure), "tiny", found, found, dict.fromkeys(ROOMS, "0" * 12))


def drawn(draw, path, *of):
    draw(*of, path)
    return path.read_bytes()


def curves(of, path):
    return drawn(draw_curves, path, of.suite.experiments[0], of)


def forest(of, path):
    return drawn(draw_forest, path, of)


@pytest.mark.parametrize("draw", [curves, forest])
def test_equal_cells_give_equal_bytes_and_others_give_others(draw, tmp_path):
    first = draw(there(), tmp_path / "1.png")
    with matplotlib.rc_context({"font.size": 40, "axes.facecolor": "red", "savefig.dpi": 30}):
        assert draw(there(), tmp_path / "2.png") == first
    assert draw(there(shift=0.3), tmp_path / "3.png") != first
    assert struct.unpack(">II", first[16:24])[0] == 1600
    assert b"atplotlib" not in first


def test_every_model_has_a_panel_by_greedy_and_one_by_sampled():
    figure = curves_figure(there().suite.experiments[0], there())
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "small, greedy accuracy",
        "large, greedy accuracy",
        "small, sampled reward",
        "large, sampled reward",
    ]
    for axes in figure.axes:
        assert len(axes.lines) == 2  # F-TIS, alone
    ends = [line.get_ydata()[-1] for line in figure.axes[0].lines]
    assert ends == pytest.approx([0.6, 0.5])


def test_four_models_stand_in_two_rows_that_do_not_overlap():
    of = there(pairs=("digits.four", "digits.size"), pair=("small", "large", "coder", "writer"))
    figure = curves_figure(of.suite.experiments[0], of)
    boxes = [axes.get_position() for axes in figure.axes]
    assert len(boxes) == 8 + 4
    for at, one in enumerate(boxes):
        for other in boxes[at + 1 :]:
            assert not one.overlaps(other)


def test_the_legend_says_what_each_setting_means():
    figure = curves_figure(there().suite.experiments[0], there())
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == [
        "F-TIS: TIS, with the filter, g = 50",
        "alone: writes every answer itself, learns from those",
    ]


def test_a_setting_that_nobody_foresaw_is_drawn(tmp_path):
    of = there(claim(setting="new$_"))
    of.suite.settings["new$_"] = Setting(title="a $ new _ one")
    try:
        curves(of, tmp_path / "1.png")
    finally:
        del of.suite.settings["new$_"]


def test_a_curve_is_the_mean_over_the_seeds_with_its_interval():
    nodes = [node((0.1, e / 2, e)) for e in (0.5, 0.6, 0.55, 0.4, 0.5)]
    curve = curve_of("alone", nodes, "greedy")
    assert curve.rounds == (0, 10, 20)
    found = (curve.mean[2], curve.low[2], curve.high[2])
    assert found == pytest.approx(oracle.interval([0.5, 0.6, 0.55, 0.4, 0.5]), abs=1e-4)
    assert (curve.low[0], curve.high[0]) == pytest.approx((0.1, 0.1))
    (alone,) = [curve_of("alone", nodes[:1], "greedy")]
    assert alone.low == alone.mean == alone.high == nodes[0].greedy
    assert curve_of("alone", [], "greedy") is None


def test_sampled_reward_is_smoothed_over_three_rounds_and_keeps_its_ends():
    values = [0.0, 0.9, 0.3, 0.6, 0.0, 0.3]
    assert smoothed(values) == pytest.approx([0, 0.4, 0.6, 0.3, 0.3, 0.3])
    curve = curve_of("alone", [node(sampled=values, rounds=20)], "sampled")
    assert curve.mean == pytest.approx(smoothed(values))
    assert curve.rounds == (1, 2, 3, 4, 5, 6)


def bars(axes):
    """(low, high, colour) of each test that is drawn."""
    lines = [line for line in axes.lines if len(line.get_xdata()) == 2]
    return [(*line.get_xdata(), line.get_color()) for line in lines if line.get_linewidth() == 2]


@pytest.mark.parametrize(
    "lies, verdict, low, high",
    [
        ("above", "shown", 0.05, None),
        ("below", "refuted", None, -0.05),
        ("within", "refuted", -0.05, 0.05),
        ("not below", "shown", -0.05, None),
    ],
)
def test_every_test_is_a_bar_in_its_verdicts_colour_over_where_its_claim_holds(
    lies, verdict, low, high
):
    of = there(claim(lies=lies, margin=0.05))
    (axes,) = forest_figure(of).axes
    drawn = bars(axes)
    assert [bar[2] for bar in drawn] == [COLOURS[verdict]] * 2
    assert [bar[:2] for bar in drawn] == [pytest.approx((0.1, 0.1))] * 2
    (band,) = [c for c in axes.collections if c.get_facecolor().size]
    xs = band.get_paths()[0].vertices[:, 0]
    left, right = axes.get_xlim()
    assert (xs.min(), xs.max()) == pytest.approx((left if low is None else low,
                                                  right if high is None else high))  # fmt: skip
    assert matplotlib.colors.to_hex(band.get_facecolor()[0]) == HOLDS


def test_a_mean_over_pairs_is_one_bar_of_its_family():
    of = there(claim(over="mean of pairs", node="stronger"))
    (axes,) = forest_figure(of).axes
    assert [bar[:2] for bar in bars(axes)] == [pytest.approx((0.1, 0.1))]


def test_claims_that_were_not_tried_at_a_scale_have_no_band():
    of = there()
    assert [len(band.tests) for band in bands_of(of)] == [2]
    elsewhere = of_results(of.suite, "paper", [], {}, {})
    assert bands_of(elsewhere) == []


def test_out_of_distribution_every_setting_is_a_dot_with_its_interval():
    of = there(claim(measure="out-of-distribution"))
    (axes,) = dots_figure(of.suite.experiments[0], of).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["small", "large"]
    assert len(axes.lines) == 2 * 2 * 2  # a bar and a dot, of two settings, of two models
    assert {line.get_xdata()[0] for line in axes.lines} == {0.4}


def test_an_experiment_about_nothing_but_that_has_dots_and_others_have_curves(tmp_path):
    outside, inside = (there(claim(measure=m)) for m in ("out-of-distribution", "greedy"))
    heights = []
    for of in (outside, inside):
        folder = tmp_path / of.suite.experiments[0].claims[0].measure / "experiments"
        page._draw_all(replace(of.suite, folder=folder), [of])
        made = sorted((folder.parent / "docs/results").iterdir())
        assert [path.name for path in made] == ["claims-tiny.png", "fig04_size-tiny.png"]
        heights.append(struct.unpack(">II", made[1].read_bytes()[16:24])[1])
    assert heights[0] != heights[1]


def test_a_picture_of_few_colours_keeps_the_rarest(tmp_path):
    def busy():
        figure = Figure(figsize=(4, 4), dpi=100)
        shades = np.random.default_rng(0).uniform(0.4, 0.6, (380, 380, 3))
        figure.figimage(shades)
        figure.add_artist(Line2D([0.5, 0.52], [0.5, 0.5], color=COLOURS["refuted"], lw=2))
        return figure

    save_small(busy, tmp_path / "1.png")
    seen = imread(tmp_path / "1.png")[:, :, :3]
    wanted = matplotlib.colors.to_rgb(COLOURS["refuted"])
    assert np.abs(seen - wanted).max(-1).min() < 0.05


def test_each_claim_has_its_own_tests_in_a_band():
    of = there(claim(), claim(id="b", node="first", lies="above"))
    assert [len(band.tests) for band in bands_of(of)] == [2, 1]


def test_settings_of_an_experiment_look_different_whatever_their_names():
    for settings in (["alone", "mine", "yours"], ["alone-long", "f-tis-long"], [*"abcdef"]):
        assert len(set(styles_of(settings).values())) == len(settings)
    assert styles_of(["alone", "f-tis", "mine"])["f-tis"] == styles_of(["f-tis"])["f-tis"]
