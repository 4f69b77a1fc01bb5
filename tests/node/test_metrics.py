"""What a node says about each author, against plain loops."""

import json
import math
from dataclasses import asdict

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nouns import completion
from potluck.node import report as report_module
from potluck.node.learning.base import UpdateReport
from potluck.node.learning.batch import Batch, Scored
from potluck.node.learning.score import METRICS, row_metrics
from potluck.node.report import author_reports

token = st.tuples(st.floats(-8, 0, width=32), st.floats(-8, 0, width=32))
row = st.tuples(
    st.sampled_from(["north", "south", "west"]),
    st.sampled_from([-1.0, 0.0, 0.5, 2.0]),
    st.booleans(),
    st.lists(token, min_size=1, max_size=5),
)


BYTES = 3
"""Bytes of a token's text."""


def scored_of(rows, cap=2.0, dropped=()):
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
    completions = tuple(
        completion(problem=f"p{i % 3}", author=author, index=i)
        for i, (author, *_) in enumerate(rows)
    )
    trusted_B = torch.ones(len(rows), dtype=torch.bool)
    bytes_B, counts = mask_BT.sum(dim=1) * BYTES, (len(rows), int(mask_BT.sum()))
    columns = gen_BT, advantage_B, mask_BT, bytes_B, trusted_B, bytes_B, bytes_B
    silenced_B = torch.zeros_like(trusted_B)
    batch = Batch(completions, (), (), (), *columns, (), silenced_B, *counts)
    found = start_BT, torch.zeros_like(start_BT), kept_B, metrics_BK
    return Scored(batch, *found, dict.fromkeys(dropped, "gradient"))


def reports_of(rows, cap=2.0, dropped=()):
    scored = scored_of(rows, cap, dropped)
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
            assert report.k1 is report.k3 is report.log_ratio_mean is None
            continue
        assert report.log_ratio_mean == pytest.approx(sum(ratios) / len(ratios), abs=1e-5)
        surprise = [-start / math.log(2) for *_, tokens in loud for start, _ in tokens]
        in_bytes = sum(surprise) / (BYTES * len(ratios))
        assert report.bits_per_byte == pytest.approx(in_bytes, rel=1e-4)
        k1 = [sum(d) / len(d) for d in apart]
        k3 = [sum(math.exp(x) - x - 1 for x in d) / len(d) for d in apart]
        assert report.k1 == pytest.approx(sum(k1) / len(k1), abs=1e-5)
        assert report.k3 == pytest.approx(sum(k3) / len(k3), rel=1e-4, abs=1e-5)
        near = [w for w in weights if abs(w - 2) < 1e-5]
        capped = sum(w > 2 for w in weights) / len(weights)
        assert report.capped_share == pytest.approx(capped, abs=len(near) / len(weights) + 1e-9)
        ess = sum(weights) ** 2 / (len(weights) * sum(w * w for w in weights))
        assert report.effective_sample_size == pytest.approx(ess, rel=1e-4)
        bad = [gone for _, advantage, gone, _ in loud if advantage < 0]
        assert report.filtered_share_negative == mean_of(bad)


def mean_of(values):
    return pytest.approx(sum(values) / len(values), rel=1e-4, abs=1e-5) if values else None


@pytest.mark.parametrize("claims", [True, False])
@given(st.lists(row, min_size=1, max_size=12))
def test_successes_are_told_apart_from_failures(claims, rows):
    if not claims:
        rows = [(*r[:3], [(start, math.nan) for start, _ in r[3]]) for r in rows]
    for author, report in reports_of(rows).items():
        good = [r for r in rows if r[0] == author and r[1] > 0]
        texts = [tokens for *_, tokens in good]
        assert report.likelihood_positive == mean_of(
            [math.prod(math.exp(start) for start, _ in t) ** (1 / len(t)) for t in texts]
        )
        apart = [[gen - start for start, gen in t] for t in texts] if claims else []
        assert report.k1_positive == mean_of([sum(d) / len(d) for d in apart])
        taken = [0.0 if gone else advantage for _, advantage, gone, _ in good]
        assert report.success_weight == (
            pytest.approx(sum(taken) / sum(r[1] for r in good)) if good else None
        )
        least = [min(math.exp(start - (gen if claims else 0)) for start, gen in t) for t in texts]
        if not any(abs(w - 0.2) < 1e-6 for w in least):  # float32 may see it on the other side
            assert report.blocked_share == mean_of([w < 0.2 for w in least])


def test_without_log_probabilities_of_the_author_nothing_is_made_up():
    (report,) = reports_of([("south", 1.0, False, [(-0.5, math.nan), (-1.5, math.nan)])]).values()
    needs = (report.log_ratio_mean, report.k1, report.k3, report.k1_positive)
    assert {*needs, report.capped_share, report.effective_sample_size} == {None}
    assert report.likelihood_positive == pytest.approx(math.exp(-1))


def test_whatever_a_peer_claims_the_statistics_are_numbers_or_nothing():
    for gen in (-100.0, -1000.0):
        (report,) = reports_of([("south", 1.0, False, [(-0.5, gen), (-1.0, gen)])]).values()
        json.dumps(asdict(report), allow_nan=False)
        assert report.capped_share == 1.0
    (report,) = reports_of([("south", 1.0, False, [(0.0, -800.0), (-800.0, 0.0)])]).values()
    assert (report.k3, report.effective_sample_size) == (None, None)
    json.dumps(asdict(report), allow_nan=False)


def test_a_dropped_row_is_counted_as_neither_measured_nor_filtered():
    rows = [("south", -1.0, True, [(-1.0, -1.0)]), ("south", -1.0, False, [(-2.0, -1.0)])]
    (report,) = reports_of(rows, dropped=[0]).values()
    assert (report.filtered_share_negative, report.rows_trained) == (0.0, 1)
    assert report.log_ratio_mean == -1.0


def test_a_dropped_row_is_not_in_the_share_of_the_round_that_the_filter_silenced():
    told = [(-1.0, -1.0)]
    rows = [("south", -1.0, is_silent, told) for is_silent in (True, True, False, False)]
    scored = scored_of(rows, dropped=[0])
    update = UpdateReport(1, 0.0, 0.0, 0.0, scored, {})
    told_of = report_module._of_update(update, "north")
    assert (told_of["dropped_nonfinite"], told_of["rows_trained"]) == (1, 2)
    assert told_of["filtered_share"] == 1 / 4


def test_the_cap_is_the_one_given():
    rows = [("south", 1.0, False, [(-1.0, -2.0), (-1.0, -1.0)])]
    shares = [reports_of(rows, cap=cap)["south"].capped_share for cap in (0.5, 2.0, 3.0)]
    assert shares == [1.0, 0.5, 0.0]
