"""What a node says about each author, against plain loops."""

import json
import math
from dataclasses import asdict

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nouns import completion
from potluck.node import Batch, Scored
from potluck.node.metrics import METRICS, author_reports, row_metrics

token = st.tuples(st.floats(-8, 0, width=32), st.floats(-8, 0, width=32))
row = st.tuples(
    st.sampled_from(["north", "south", "west"]),
    st.sampled_from([-1.0, 0.0, 0.5, 2.0]),
    st.booleans(),
    st.lists(token, min_size=1, max_size=5),
)


def reports_of(rows, cap=2.0, dropped=()):
    """rows: (author, advantage, silenced, [(start, gen), ...])."""
    longest = max(len(tokens) for *_, tokens in rows)
    start_BT, gen_BT = (torch.full((len(rows), longest), math.nan) for _ in range(2))
    mask_BT = torch.zeros(len(rows), longest, dtype=torch.bool)
    for i, (*_, tokens) in enumerate(rows):
        for t, (start, gen) in enumerate(tokens):
            start_BT[i, t], gen_BT[i, t], mask_BT[i, t] = start, gen, True
    advantage_B = torch.tensor([advantage for _, advantage, *_ in rows])
    kept_B = torch.tensor([0.0 if gone else a for _, a, gone, _ in rows])
    metrics_BK = row_metrics(start_BT, gen_BT, mask_BT, weight_cap=cap)
    assert metrics_BK.shape == (len(rows), len(METRICS))
    metrics_BK[advantage_B == 0] = math.nan
    completions = tuple(completion(author=author) for author, *_ in rows)
    batch = Batch(completions, (), (), gen_BT, advantage_B, mask_BT)
    scored = Scored(batch, start_BT, kept_B, metrics_BK, dict.fromkeys(dropped, "gradient"))
    return author_reports(scored, [float(a > 0) for _, a, *_ in rows])


@given(st.lists(row, min_size=1, max_size=8))
def test_each_figure_is_what_a_plain_loop_finds(rows):
    reports = reports_of(rows)
    assert sorted(reports) == sorted({author for author, *_ in rows})
    for author, report in reports.items():
        own = [r for r in rows if r[0] == author]
        loud = [r for r in own if r[1] != 0]
        ratios = [start - gen for *_, tokens in loud for start, gen in tokens]
        weights = [math.exp(r) for r in ratios]
        apart = [[gen - start for start, gen in tokens] for *_, tokens in loud]
        assert report.completions == len(own)
        assert report.tokens == sum(len(tokens) for *_, tokens in own)
        assert report.reward_mean == pytest.approx(sum(r[1] > 0 for r in own) / len(own))
        assert report.with_advantage == len(loud)
        assert report.rows_trained == sum(not gone for _, _, gone, _ in loud)
        if not loud:
            assert report.k1 is report.k3 is report.log_ratio_mean is report.log_ratio_max is None
            continue
        assert report.log_ratio_mean == pytest.approx(sum(ratios) / len(ratios), abs=1e-5)
        assert report.log_ratio_max == pytest.approx(max(ratios), abs=1e-5)
        k1 = [sum(d) / len(d) for d in apart]
        k3 = [sum(math.exp(x) - x - 1 for x in d) / len(d) for d in apart]
        assert report.k1 == pytest.approx(sum(k1) / len(k1), abs=1e-5)
        assert report.k3 == pytest.approx(sum(k3) / len(k3), rel=1e-4, abs=1e-5)
        near = [w for w in weights if abs(w - 2) < 1e-5]
        capped = sum(w > 2 for w in weights) / len(weights)
        assert report.capped_share == pytest.approx(capped, abs=len(near) / len(weights) + 1e-9)
        ess = sum(weights) ** 2 / (len(weights) * sum(w * w for w in weights))
        assert report.effective_sample_size == pytest.approx(ess, rel=1e-4)
        for sign, share in (
            (1, report.filtered_share_positive),
            (-1, report.filtered_share_negative),
        ):
            of = [r for r in loud if r[1] * sign > 0]
            expected = sum(r[2] for r in of) / len(of) if of else None
            assert share == pytest.approx(expected)


@pytest.mark.parametrize("gen", [-100.0, -350.0, -400.0, -700.0, -1000.0])
def test_whatever_a_peer_claims_the_statistics_are_numbers_or_nothing(gen):
    (report,) = reports_of([("south", 1.0, False, [(-0.5, gen), (-1.0, gen)])]).values()
    json.dumps(asdict(report), allow_nan=False)
    assert report.capped_share == 1.0


def test_a_ratio_that_overflows_is_no_number_and_still_json():
    (report,) = reports_of([("south", 1.0, False, [(0.0, -800.0), (-800.0, 0.0)])]).values()
    assert report.k3 is None
    assert report.effective_sample_size is None
    assert report.log_ratio_max == 800.0
    json.dumps(asdict(report), allow_nan=False)


def test_a_dropped_row_is_counted_as_neither_measured_nor_filtered():
    rows = [
        ("south", -1.0, True, [(-1.0, -1.0)]),
        ("south", -1.0, False, [(-2.0, -1.0)]),
    ]
    (report,) = reports_of(rows, dropped=[0]).values()
    assert (report.filtered_share_negative, report.rows_trained) == (0.0, 1)
    assert report.log_ratio_mean == -1.0


def test_the_cap_is_the_one_given():
    rows = [("south", 1.0, False, [(-1.0, -2.0), (-1.0, -1.0)])]
    shares = [reports_of(rows, cap=cap)["south"].capped_share for cap in (0.5, 2.0, 3.0)]
    assert shares == [1.0, 0.5, 0.0]
