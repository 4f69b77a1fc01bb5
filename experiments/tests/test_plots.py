"""The pictures are drawn from the frames."""

import matplotlib
import pandas as pd
import pytest
from matplotlib import pyplot

import oracle
from made_up import claim, experiment, node, results, runs, suite
from potluck_experiments import plots
from potluck_experiments.verdicts import try_all

pytestmark = pytest.mark.page

PAIR = ("small", "large")
ENDS = [0.5, 0.52, 0.48, 0.51, 0.49]


@pytest.fixture(autouse=True)
def close():
    yield
    pyplot.close("all")


def there(*claims, shift=0.1, pairs=("digits.size",), pair=PAIR):
    of = suite(experiment(*(claims or (claim(),)), pairs=pairs))
    alone, higher = ({m: [e + by for e in ENDS] for m in pair} for by in (0, shift))
    return results(*runs("alone", pair, **alone), *runs("f-tis", pair, **higher), suite=of)


def test_every_model_has_a_panel_by_greedy_and_one_by_sampled_with_means_of_the_frame():
    of = there()
    figure = plots.draw_curves(of.suite.experiments[0], of)
    curves = plots.curves_of(of.suite.experiments[0], of)
    panels = [(model, kind) for kind in plots.KINDS for model in PAIR]
    for axes, (model, kind) in zip(figure.axes, panels, strict=True):
        assert axes.get_title(loc="left") == f"column addition, {model}\n{plots.KINDS[kind]}"
        its = curves[(curves.model == model) & (curves.kind == kind)]
        means = its.groupby(["setting", "round"]).value.mean()
        drawn = [line for line in axes.lines if len(line.get_xdata())]
        for line, setting in zip(drawn, ("f-tis", "alone"), strict=True):
            assert list(line.get_ydata()) == pytest.approx(list(means[setting]))
    assert plots.bounds(ENDS) == pytest.approx(oracle.interval(ENDS)[1:], abs=1e-4)  # of the band
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["F-TIS", "alone"]


def test_base_pairs_are_drawn_as_one_by_role_a_mean_of_its_seeds_each():
    head = ["pair", "model", "setting", "seed", "kind", "round", "value"]
    rows = [
        (f"size.{pair}", f"small-{pair}", "lws", seed, "greedy", 5, 0.1 * pair + 0.02 * seed)
        for pair in (0, 1)
        for seed in (0, 1)
    ]
    pooled = plots.mean_of_seeds(pd.DataFrame(rows, columns=head))
    assert [tuple(row) for row in pooled[head].to_numpy()] == [
        ("size", "small", "lws", "size.0", "greedy", 5, pytest.approx(0.01)),
        ("size", "small", "lws", "size.1", "greedy", 5, pytest.approx(0.11)),
    ]


def test_sampled_reward_is_averaged_over_three_rounds_and_keeps_its_ends():
    values = [0.0, 0.9, 0.3, 0.6, 0.0, 0.3]
    points = plots._points(node((0.1, 0.2, 0.3), rounds=6, sampled=values), "sampled")
    assert [at for at, _ in points] == [1, 2, 3, 4, 5, 6]
    assert [value for _, value in points] == pytest.approx([0, 0.4, 0.6, 0.3, 0.3, 0.3])


def test_a_new_setting_has_a_style_of_its_own():
    for settings in (["alone", "mine", "yours"], [*"abcdef"]):
        assert len(set(plots.styles_of(settings).values())) == len(settings)
    assert (
        plots.styles_of(["alone", "f-tis", "mine"])["f-tis"] == plots.styles_of(["f-tis"])["f-tis"]
    )


def test_every_test_is_a_bar_in_its_verdicts_colour_over_where_its_claim_holds():
    for lies, verdict, low, high in (
        ("above", "shown", 0.05, None),
        ("below", "refuted", None, -0.05),
        ("within", "refuted", -0.05, 0.05),
    ):
        of = there(claim(lies=lies, margin=0.05))
        (axes,) = plots.draw_claims(of, try_all(of)).axes
        (bar,) = [line for line in axes.lines if line.get_linewidth() == 2]
        assert bar.get_color() == plots.VERDICT_COLOURS[verdict]
        assert tuple(bar.get_xdata()) == pytest.approx((0.1, 0.1))
        (band,) = [c for c in axes.collections if c.get_facecolor().size]
        xs, (left, right) = band.get_paths()[0].vertices[:, 0], axes.get_xlim()
        edges = left if low is None else low, right if high is None else high
        assert (xs.min(), xs.max()) == pytest.approx(edges)
        assert matplotlib.colors.to_hex(band.get_facecolor()[0]) == plots.HOLDS


def test_out_of_distribution_every_setting_is_a_point_for_each_model():
    of = there(claim(measure="out-of-distribution"))
    names = dict(plots.draw_all(of))
    (axes,) = names["fig04_size-tiny.png"].axes
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        f"small + large: {model}" for model in PAIR
    ]
    points = [x for line in axes.lines for x in line.get_xdata()]
    assert points
    assert points == pytest.approx([0.4] * len(points))


def test_only_claims_that_are_put_first_are_in_the_picture_of_claims():
    both = claim(text="first", primary=True), claim(id="b", text="not first")
    names = dict(plots.draw_all(there(*both)))
    (axes,) = names["claims-tiny.png"].axes
    texts = [text.get_text() for text in axes.texts]
    assert "first" in texts
    assert "not first" not in texts
    assert "claims-tiny.png" not in dict(plots.draw_all(there(claim())))
