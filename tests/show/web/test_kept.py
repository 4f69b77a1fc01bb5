"""The page in a file: everything in it, nothing from outside, and no larger than it may be."""

import json
import re

import pytest
from typer.testing import CliRunner

from potluck.cli import app
from potluck.show.web import page as page_module
from potluck.show.web.page import keep, kept_page, live_page
from potluck.show.web.views import Kept
from show.terminal.run_folders import HOSTILE, STEERS, metrics, source
from show.web.run_files import append, completion, make_run

DATA = re.compile(r'<script type="application/json" id="kept">(.*?)</script>', re.DOTALL)


def data_of(page):
    (text,) = DATA.findall(page)
    return text


@pytest.fixture
def folder(tmp_path):
    return make_run(tmp_path / "r", "small", "large", rounds=4)


def test_all_of_a_run_is_in_it(folder):
    kept, left_out = keep({"": folder}, title="t", lead=["finding"], labels={"": "shown"})
    data = json.loads(data_of(kept_page(kept)))
    run = data["runs"][""]
    assert (data["title"], data["lead"], data["labels"]) == ("t", ["finding"], {"": "shown"})
    assert run["view"]["curves"]["small"]["columns"]["round"] == [0, 1, 2, 3]
    pairs = {(pair["learner"], pair["author"]): pair for pair in run["pairs"]}
    assert set(pairs) == {(a, b) for a in ("small", "large") for b in ("small", "large")}
    assert pairs["small", "large"]["columns"]["round"] == [0, 1, 2, 3]
    shown = [(texts["node"], texts["rounds"], texts["texts"][0]["round"]) for texts in run["texts"]]
    assert shown == [("large", [3], 3), ("small", [3], 3)]  # the menu has no round that is not here
    assert len(left_out) == 1


def test_it_asks_nobody_and_its_policy_forbids_it(folder):
    page = kept_page(keep({"": folder}, title="t")[0])
    assert not re.search(r"""(src|href|action)\s*=\s*["']?\s*(\w+:)?//""", page)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert "connect-src 'none'" in policy
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in live_page().policy
    assert page.index("Content-Security-Policy") < page.index("<style")


@pytest.mark.parametrize(
    "text", [HOSTILE, "</script><!--<script>", "<!-- style -->\\1", "\ud7ff\u2028"]
)
def test_hostile_text_stays_data_and_comes_back_as_it_was(tmp_path, text):
    folder = make_run(tmp_path / "r", "small", name=text)
    append(folder / "small" / "metrics.jsonl", metrics(3, sources={text: source()}))
    append(folder / "small" / "completions.jsonl", completion(9, text, text=text, problem=text))
    page = kept_page(keep({text: folder}, title=text, lead=[text])[0])
    data = data_of(page)
    assert "<" not in data
    assert not set(STEERS) & set(data)
    assert page.count("<script") == kept_page(Kept(title="", runs={})).count("<script")
    found = json.loads(data)
    assert (found["title"], found["lead"], list(found["runs"])) == (text, [text], [text])
    assert found["runs"][text]["texts"][0]["texts"][0]["text"] == text
    assert text in found["runs"][text]["view"]["matrix"]["small"]


@pytest.mark.parametrize(
    "most, gone",
    [(9_000, "pairs and curves"), (6000, "all completions"), (10, "all pairs")],
)
def test_what_is_too_large_is_left_out_and_that_is_said(folder, monkeypatch, most, gone):
    whole = len(kept_page(keep({"": folder}, title="t")[0]))
    monkeypatch.setattr(page_module, "MOST_BYTES", most)
    monkeypatch.setattr(page_module, "POINTS", 2)
    kept, left_out = keep({"": folder}, title="t")
    assert gone in " ".join(left_out)
    assert len(kept_page(kept)) < whole


def test_show_writes_it_and_says_what_is_missing(folder, tmp_path):
    file = tmp_path / "kept.html"
    done = CliRunner().invoke(app, ["show", str(folder), "--html", str(file)])
    assert done.exit_code == 0
    assert f"wrote {file}" in done.output.replace("\n", "")
    assert "left out: completions" in " ".join(done.output.split())
    assert json.loads(data_of(file.read_text()))["runs"][""]["view"]["name"] == "my-run"
