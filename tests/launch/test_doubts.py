"""An author whose claimed log-probabilities stand out is told of: once, and with what to do."""

from dataclasses import replace

import numpy as np
import pytest

import tiny
from launch.runs import Hears
from potluck.launch.in_process import run
from potluck.reports import AuthorReport, Doubts, RoundReport
from potluck.rollout.hf import HFEngine
from show.terminal.run_folders import make_run, metrics, source
from show.terminal.test_show import shown

HONEST = {"tokens": 500, "log_ratio_mean": -8.5, "capped_share": 0.03}
"""As models of two notations see each other."""
CLAIMS, CAPPED = "log_ratio_mean", "capped_share"


def doubts(report, me, *, reads_logp):
    """The node that it is about, the kind and the line of each alert of a first round."""
    alerts = Doubts(me, "likelihood", reads_logp=reads_logp).new(report)
    return [(alert.text.split(":")[0], alert.kind, alert.text) for alert in alerts]


def found(**its):
    report = RoundReport(3, sources={"south": AuthorReport(**{**HONEST, **its})})
    return [(author, kind) for author, kind, _ in doubts(report, "north", reads_logp=True)]


@pytest.mark.parametrize("its, kinds", [
    ({}, []),
    ({"log_ratio_mean": None, "capped_share": None}, []),
    ({"log_ratio_mean": 0.49, "capped_share": 0.49}, []),
    ({"log_ratio_mean": 0.5}, [CLAIMS]),
    ({"capped_share": 0.5}, [CAPPED]),
    ({"log_ratio_mean": 20.0, "capped_share": 1.0}, [CLAIMS, CAPPED]),
    ({"log_ratio_mean": 20.0, "capped_share": 1.0, "tokens": 49}, []),
    ({"log_ratio_mean": 20.0, "capped_share": 1.0, "gradient_share": 0.0}, []),  # it is not trusted
])  # fmt: skip
def test_claims_are_doubted_from_these_limits_on(its, kinds):
    assert found(**its) == [("south", kind) for kind in kinds]


def test_nobody_doubts_itself_and_the_line_says_what_to_do():
    forged = AuthorReport(tokens=500, log_ratio_mean=20.0, capped_share=1.0)
    report = RoundReport(3, sources={"south": forged})
    assert doubts(report, "south", reads_logp=True) == []
    claims, capped = (line for _, _, line in doubts(report, "north", reads_logp=True))
    assert claims.startswith("south: 20.0 nats a token likelier to north than it claims; ")
    assert capped.startswith("south: 100% of tokens above the weight cap of north; ")
    for line in (claims, capped):
        assert "may be forged" in line
        assert "method = 'lws'" in line
        assert "trust = 'nobody'" in line


@pytest.fixture
def forger(monkeypatch):
    """Makes the node "small" claim that each of its tokens was as unlikely as e^-30."""
    honest = HFEngine.generate

    def forged(self, requests, sampler, *, author, progress):
        completions = honest(self, requests, sampler, author=author, progress=progress)
        if author != "small":
            return completions
        return [replace(c, logp_T=np.full(len(c.token_T), -30, np.float32)) for c in completions]

    monkeypatch.setattr(HFEngine, "generate", forged)
    # Which a forger has taken out, too.
    monkeypatch.setattr(HFEngine, "require_one_model", lambda *given: None)


def doubted_in_a_run(tiny_models, folder, *overrides):
    # Enough tokens that a mean says something.
    config = tiny.recipe(
        tiny_models, "rounds=3", "group_size=12", "objective.method=f-tis", *overrides
    )
    run(config, folder, display=(hears := Hears()))
    return [text.split(": ")[0] for text in hears.said if "forged" in text]


def test_a_forger_is_told_of_once_for_each_way_it_stands_out(tiny_models, tmp_path, forger):
    assert doubted_in_a_run(tiny_models, tmp_path / "run") == ["small", "small"]


def test_what_the_line_says_to_do_helps(tiny_models, tmp_path, forger):
    assert doubted_in_a_run(tiny_models, tmp_path / "run", "objective.method=lws") == []


def test_show_says_it_once_with_its_first_round(tmp_path):
    forged = {"large": source(tokens=500, log_ratio_mean=20.0, capped_share=0.2)}
    rounds = [metrics(0), *(metrics(at, sources=forged) for at in (1, 2))]
    text = " ".join(shown(make_run(tmp_path / "run", "small", rounds=rounds)).split())
    assert text.count("may be forged") == 1
    assert "round 2: large: 20.0 nats a token likelier to small than it claims" in text


def test_a_node_all_of_whose_completions_are_cut_off_is_told_what_to_raise():
    def said(**figures):
        return doubts(RoundReport(3, **figures), "north", reads_logp=True)

    ((who, kind, line),) = said(own_cut_share=1.0)
    assert (who, kind) == ("north", "own_cut_share")
    assert "north: every one of its completions ran out of tokens" in line
    assert "raise [sampling] max_new_tokens" in line
    assert said(own_cut_share=0.99) == said(own_cut_share=None) == said() == []
    ((_, _, line),) = said(own_cut_share=1.0, sources={"north": AuthorReport(turns_mean=6.0)})
    assert "was cut off before the environment was done; raise [task] max_turns" in line


@pytest.mark.parametrize("apart, first, lines", [
    (None, None, 0),
    (3e-8, 3e-8, 0),
    (9e-7, 7e-9, 0),  # both are rounding of float32
    (1.9e-5, 3e-8, 0),
    (4e-4, 3e-8, 1),
    (3e-2, 2e-3, 0),  # both of bfloat16
    (4.1e-2, 2e-3, 1),
])  # fmt: skip
def test_a_server_that_is_farther_from_the_model_than_at_first_is_told_of(apart, first, lines):
    report = RoundReport(3, server_apart=apart, server_apart_first=first)
    told = doubts(report, "north", reads_logp=False)
    assert [(who, kind) for who, kind, _ in told] == [("north", "server_apart")] * lines
    for _, _, line in told:
        assert f"are {apart:.1e} nats a token from its own, in the run's first" in line


def unheard(weights, *, weight="typicality", **its):
    """Return (round, text) of north's notes about south, whose successes have ``weights``."""
    told = Doubts("north", weight, reads_logp=False)
    notes = []
    for round, each in enumerate(weights):
        author = AuthorReport(success_weight=each, **its)
        report = RoundReport(round, sources={"north": author, "south": author})
        notes += [(round, alert.text) for alert in told.new(report)]
    return notes


@pytest.mark.parametrize("weights, told", [
    ([0.049] * 7, [4]),
    ([0.05] * 7, []),
    ([0.01] * 4 + [0.05] + [0.01] * 4, []),
    ([0.01] * 2 + [None] + [0.01] * 3, [5]),  # it was right in none, so nothing was weighed
    ([0.01] * 6 + [0.2] + [0.01] * 6, [4, 11]),
])  # fmt: skip
def test_that_nothing_is_learned_from_an_author_is_said_after_five_rounds_and_once(weights, told):
    said = unheard(weights)
    assert [round for round, _ in said] == told
    for _, line in said:
        assert line.startswith(
            "north: nothing is learned from south, the mean weight of its successes"
        )


@pytest.mark.parametrize("its, weight, words", [
    (
        {"silenced_share": 0.98, "tested_habit": "^ #", "habit_gain": -0.2, "habit_gain_error": 1},
        "typicality",
        ["98% of south's successes", "begin with '#'", "earn 0.20 less", "habit_test = false"],
    ),
    ({"likelihood_positive": 0.3}, "likelihood", ["P 0.300", "likelihood_exponent", "typicality"]),
    ({"likelihood_positive": 0.3}, "typicality", ["P 0.300", "not typical", "likelihood_exponent"]),
    ({"gradient_share": 0.0, "completions": 12}, "typicality",
     ["it is not trusted", "roster", "trust = 'everybody'", "in 5 rounds (60 completions) is"]),
    ({"gradient_share": 0.0, "completions": 12, "likelihood_positive": 0.3}, "typicality",
     ["it is not trusted", "(P 0.300)", "in 3 rounds (36 completions) is"]),
    ({}, "mine.py:weigh", ["weight = 'mine.py:weigh'"]),
])  # fmt: skip
def test_the_note_says_why_and_what_to_do(its, weight, words):
    ((_, line),) = unheard([0.02] * 5, weight=weight, **its)
    assert [word for word in words if word not in line] == []
    assert ("habit" in line) == ("silenced_share" in its)


def test_a_run_says_it_and_writes_it_down(tiny_models, tmp_path):
    folder = tmp_path / "run"
    options = "rounds=6", "objective.method=lws", "objective.likelihood_exponent=300"
    config = tiny.recipe(tiny_models, "group_size=12", *options)
    run(config, folder, display=(hears := Hears()))
    assert sorted(text.split(",")[0] for text in hears.said if "nothing is" in text) == [
        "large: nothing is learned from small",
        "small: nothing is learned from large",
    ]
    written = "".join(file.read_text() for file in folder.glob("*/events.jsonl"))
    assert written.count("nothing is learned from") == 2
    assert "small: nothing is learned from large" in " ".join(shown(folder).split())
