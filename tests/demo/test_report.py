"""The demo's report: the page of its runs with the finding and its table at the head."""

import json
import re

import pytest

from demo.results import outcome, outcomes, result
from potluck.demo.report import write_report
from show.terminal.run_folders import HOSTILE, STEERS
from show.web.run_files import append, completion, make_run

NAMES = ("lws", "alone-large", "half-large", "alone-small", "half-small")


@pytest.fixture
def runs(tmp_path):
    nodes = {name: name.split("-")[1:] or ["large", "small"] for name in NAMES}
    return {name: make_run(tmp_path / name, *nodes[name], name=name) for name in NAMES}


def report(tmp_path, of_result, runs):
    path = tmp_path / "report.html"
    write_report(of_result, runs, path)
    page = path.read_text(encoding="utf-8")
    (data,) = re.findall(r'<script type="application/json" id="kept">(.*?)</script>', page)
    return page, json.loads(data)


def test_the_finding_comes_first_and_the_way_on_last(tmp_path, runs):
    _, kept = report(tmp_path, result(), runs)
    assert kept["title"] == "Does it help to learn from each other?"
    large, small, *others, how, time = kept["lead"]
    assert large.startswith("`large` with LWS: 0.01 above alone, 0.11 above half; it wrote 48")
    assert small.startswith("`small` with LWS: 0.25 below alone, 0.25 below half; it wrote 48")
    assert "take differences of a few hundredths for noise" in others[0]
    assert "potluck run my-run.toml" in how
    assert time == "4 rounds of training in each setting; all of it took 123 seconds."


def test_the_table_has_a_row_per_node_and_setting(tmp_path, runs):
    _, kept = report(tmp_path, result(), runs)
    table = kept["table"]
    assert table["columns"][:4] == ["model", "setting", "written", "sampled reward"]
    assert [" ".join(row) for row in table["rows"]] == [
        "large alone 96 0.80 1.00 0.75",
        "large half 48 0.70 0.50 0.75",
        "large LWS 48 0.81 1.00 -",
        "small alone 96 0.50 1.00 0.75",
        "small half 48 0.50 0.50 0.75",
        "small LWS 48 0.25 1.00 -",
    ]


def test_all_five_runs_are_in_it_with_names_that_tell_them_apart(tmp_path, runs):
    _, kept = report(tmp_path, result(), runs)
    assert list(kept["runs"]) == list(NAMES)
    assert kept["labels"]["lws"] == "LWS: both together"
    assert kept["labels"]["half-small"] == "half: small"
    for name, run in kept["runs"].items():
        nodes = name.split("-")[1:] or ["large", "small"]
        assert sorted(run["view"]["curves"]) == nodes
        assert [texts["node"] for texts in run["texts"]] == nodes


def test_it_needs_nothing_but_itself(tmp_path, runs):
    page, _ = report(tmp_path, result(), runs)
    assert not re.search(r"""(src|href)\s*=\s*["']?\s*(\w+:)?//""", page)
    assert "connect-src 'none'" in page


def test_hostile_text_is_data(tmp_path, runs):
    append(runs["lws"] / "small" / "completions.jsonl", completion(9, text=HOSTILE))
    page, kept = report(tmp_path, result(), runs)
    assert "<script>alert(1)" not in page
    assert not set(STEERS) & set(page)
    (its,) = [texts for texts in kept["runs"]["lws"]["texts"] if texts["node"] == "small"]
    assert its["texts"][0]["text"] == HOSTILE


def test_a_short_demo_has_a_report(tmp_path, runs):
    nodes = {"n": dict.fromkeys(outcomes(), outcome(0, sampled=(0.5,)))}
    _, kept = report(tmp_path, result(nodes=nodes, rounds=1, seconds=0.0), runs)
    assert kept["lead"][-1] == "1 round of training in each setting."
