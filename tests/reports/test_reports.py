"""The lines of metrics.jsonl and evaluation.jsonl: their keys, and what is read of older ones."""

import msgspec

from potluck.reports import (
    AuthorReport,
    EvaluationReport,
    RewardReport,
    RoundReport,
    as_line,
    stats_of,
)
from potluck.reports.statistics import numbers_on_page
from potluck.reports.status import author_status

ROUND_KEYS = """
    round reward_mean own_reward_mean rewards own_length_mean own_cut_share groups_alike entropy
    kl learning_rate loss gradient_norm updates completions rows_trained
    filtered_share dropped_nonfinite unasked unusable unreadable too_few over_share
    over_intake staleness joint_share missing
    late late_used refused quarantined
sent_bytes sent_bytes_per_token received_bytes size_bytes
    server_apart server_apart_first texts cost
    seconds sources
"""
AUTHOR_KEYS = """
    completions tokens reward_mean with_advantage rows_trained log_ratio_mean k1 k3
    capped_share filtered_share_negative effective_sample_size k1_positive likelihood_positive
    bits_per_byte success_weight blocked_share gradient_share
"""


def test_the_keys_of_a_round_are_those_of_earlier_runs_in_their_order():
    line = as_line(RoundReport(0, sources={"north": AuthorReport()}))
    for written, known in ((line, ROUND_KEYS), (line["sources"]["north"], AUTHOR_KEYS)):
        assert [key for key in written if key in known.split()] == known.split()


def test_an_evaluation_has_the_keys_of_what_was_measured():
    assert list(as_line(EvaluationReport(3, 0.5, 200))) == ["round", "validation", "problems"]
    line = as_line(EvaluationReport(3, out_of_distribution=0.0, out_of_distribution_problems=50))
    assert line == {"round": 3, "out_of_distribution": 0.0, "out_of_distribution_problems": 50}
    graded = {"rewards": {"right": 0.0}, "partial": True}
    assert (
        as_line(EvaluationReport(3, 0.5, 200, **graded))
        == as_line(EvaluationReport(3, 0.5, 200)) | graded
    )


def test_what_is_written_is_read_as_the_same():
    report = RoundReport(
        3, reward_mean=0.5, missing=("north",), refused={"eve": 2}, seconds={"write": 1.5},
        sources={"south": AuthorReport(completions=4, k3=0.25)},
        rewards={"right": RewardReport(0.5, None)},
    )  # fmt: skip
    for each in (report, EvaluationReport(3, 0.5, 200)):
        assert msgspec.json.decode(msgspec.json.encode(as_line(each)), type=type(each)) == each


def test_a_line_of_an_older_run_has_defaults_and_one_of_a_newer_run_loses_what_is_unknown():
    line = b'{"round": 3, "sources": {"south": {"k3": 0.25, "invented": 1}}, "invented": [1]}'
    read = msgspec.json.decode(line, type=RoundReport)
    assert read == RoundReport(3, sources={"south": AuthorReport(k3=0.25)})
    assert (read.reward_mean, read.late, read.missing) == (None, 0, ())


def test_a_status_line_has_the_numbers_with_a_place_in_that_order():
    report = AuthorReport(9, 99, 0.5, success_weight=0.25, k1=-0.5, gradient_share=0.1)
    told = msgspec.json.encode(author_status(report))
    assert told.startswith(b"[9,0.5,0.25,null,null,-0.5,0.1")  # more may follow


def test_the_page_is_told_of_each_number_that_has_a_title():
    authors = numbers_on_page(stats_of(AuthorReport))
    assert authors["k1"] == {
        "unit": "nats", "group": "Training", "scale": "around", "title": "Distance k1",
        "help": "Mean over completions of ln p(author) - ln p(learner) per token. "
        "0: both write alike.",
    }  # fmt: skip
    assert [authors[name]["scale"] for name in ("success_weight", "tokens")] == ["share", "up"]
    assert "bits_per_byte" not in authors
    curves = numbers_on_page(stats_of(RoundReport), stats_of(EvaluationReport))
    assert curves["seconds/wait"]["title"] == "Seconds: wait"
    groups = [each["group"] for each in curves.values()]
    assert list(dict.fromkeys(groups)) == ["Results", "Training", "Time", "Network"]
    assert groups == sorted(groups, key=list(dict.fromkeys(groups)).index)  # each stands together


def test_warnings_and_formats_take_a_number():
    for report in (RoundReport, AuthorReport):
        for stat in stats_of(report).values():
            assert stat.title or stat.row
            assert "{" not in stat.warning
            assert format(0.5, stat.format)
