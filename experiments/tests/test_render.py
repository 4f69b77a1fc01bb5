"""The pages: pure text of cells, claims and notes; test_numbers.py recomputes their numbers."""

import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from made_up import claim, experiment, results, runs, suite
from potluck_experiments import render
from potluck_experiments.cells import cells_of
from potluck_experiments.results import read_results
from potluck_experiments.suite import SCALES, ExperimentError, read_suite
from potluck_experiments.verdicts import try_claims
from small_suite import finish, make_suite

pytestmark = pytest.mark.page

ROOT = Path(__file__).parents[2]
PAIR = ("small", "large")


def cells(shift=0.0):
    """Of the pair alone, at half, and with F-TIS, which ends ``shift`` higher."""
    small, large = [0.50, 0.52, 0.48, 0.51, 0.49], [0.70, 0.72, 0.69, 0.70, 0.71]
    found = []
    for setting, by in {"alone": 0, "half": -0.1, "f-tis": shift}.items():
        ends = {"small": [v + by for v in small], "large": [v + by for v in large]}
        found += runs(setting, PAIR, **ends)
    return found


def shown(*claims, found):
    """(docs/results.md, the experiment's page)"""
    return texts(suite(experiment(*(claims or (claim(),)))), found)


def texts(of, found):
    return tuple(render.pages(of, [results(*found, suite=of)]).values())


def rows(text):
    """Cells of all the tables; an escaped pipe ends none."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def tables(text):
    return [rows(block) for block in text.split("\n\n") if block.startswith("|")]


# The committed pages


@pytest.fixture(scope="module")
def committed():
    found = read_suite(ROOT / "experiments")
    scales = [read_results(found, scale) for scale in SCALES]
    return found, scales, render.pages(found, scales)


def test_the_committed_pages_are_the_rendering_of_the_committed_cells(committed):
    for path, text in committed[2].items():
        kept = path.read_text(encoding="utf-8") if path.is_file() else ""
        assert kept == text, f"{path} is not what the cells say: run 'make results' and commit it"


def test_every_picture_of_the_committed_pages_is_there_and_no_other(committed):
    named = set()
    for path, text in committed[2].items():
        for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
            if "://" not in link:
                target = (path.parent / link).resolve()
                assert target.is_file() or target in committed[2], f"{path}: {link}"
                named.add(target)
    pictures = set((ROOT / "docs/results").glob("*.png"))
    assert pictures == {target for target in named if target.suffix == ".png"}


def test_every_experiment_that_is_not_shown_says_what_was_tried(committed):
    for there in committed[1]:
        if len(there.cells) < there.planned:
            continue  # nothing to explain yet
        for found in committed[0].experiments:
            open = [test.claim.id for test in try_claims(found, there) if test.verdict != "shown"]
            assert found.notes or not open, (
                f"{found.name} does not show {open} at scale {there.scale}: write "
                f"experiments/{found.name}/notes.md, what was tried and what likely explains it"
            )


# Where the text comes from


def test_cells_are_read_from_their_files_and_seeds_that_nobody_asked_for_are_not(tmp_path):
    found = make_suite(tmp_path)
    for cell in cells_of(found, found.experiments, "tiny", 3)[2:]:
        finish(found, cell)
    tiny, paper = (read_results(found, scale) for scale in ("tiny", "paper"))
    assert (tiny.planned, len(tiny.cells), len(paper.cells)) == (8, 6, 0)
    text = next(iter(render.pages(found, [tiny, paper]).values()))
    assert "**Scale tiny**: 6 runs, 0.1 core-hours; 2 runs to go." in text
    assert "Scale paper" not in text
    (tmp_path / "experiments/cells/tiny/of_nobody.jsonl").write_text("{}\n")
    assert len(read_results(found, "tiny").cells) == 6


# Where the pages are written


def test_pages_are_written_over_older_ones_but_not_over_a_file_of_somebodys_own(tmp_path):
    found, other = make_suite(tmp_path), tmp_path / "experiments/fig04_size/RESULTS.md"
    other.write_text("# My results\n")
    with pytest.raises(ExperimentError, match=r"was not written by potluck reproduce.*move it"):
        render.render(found)
    assert other.read_text() == "# My results\n"
    assert not (tmp_path / "experiments/fig13_same/RESULTS.md").exists()
    other.unlink()
    first, *pages = render.render(found)
    assert (first, pages[0]) == (tmp_path / "docs/results.md", other)
    text = first.read_text(encoding="utf-8")
    first.write_text(text + "older\n", encoding="utf-8")
    assert render.render(found) == [first, *pages]
    assert first.read_text(encoding="utf-8") == text
    assert [path.name for path in (tmp_path / "docs").iterdir()] == ["results.md"]


# What the tables say


def test_the_papers_first_claims_have_a_row_each_with_difference_power_and_verdict():
    claims = [
        claim(primary=True),
        claim(id="b", text="far above", lies="above", margin=0.3, primary=True),
        claim(id="c", text="not put first"),
    ]
    overview, _ = shown(*claims, found=cells(0.01))
    text = overview.split("\n## The paper's claims, scale tiny\n")[1].split("\n## ")[0]
    found = rows(text)[2:]
    # The link stands once for each experiment.
    assert [row[0] for row in found] == ["[Figure 4](../experiments/fig04_size/RESULTS.md)", ""]
    assert [row[1:] for row in found] == [
        ["ends where alone ends", "+.010 [+.010, +.010]", ".000", "shown"],
        ["far above", "+.010 [+.010, +.010]", ".000", "refuted"],
    ]
    assert "Of 3 claims, 2 shown, 1 refuted and 0 inconclusive." in text
    assert "Of the 2 put first, 1 shown, 1 with Holm's correction" in text
    assert "results/claims-tiny.png" in text


def test_without_a_cell_or_with_a_single_one_every_page_is_written():
    overview, page = shown(found=[])
    assert "Nothing was run yet." in overview
    assert "Not run yet." in page
    for cell in cells()[::5]:
        assert "nan" not in "".join(shown(found=[cell]))


HOSTILE = "a | b\n# c <b> `d` $e$ \x1b[31m"


def test_no_text_from_outside_breaks_a_table():
    hostile = experiment(claim(text=HOSTILE), notes=HOSTILE)
    of = suite(msgspec.structs.replace(hostile, title=HOSTILE))
    tiny = of.scales["tiny"]
    family = msgspec.structs.replace(tiny.family["digits"], title=HOSTILE)
    scales = {**of.scales, "tiny": msgspec.structs.replace(tiny, family={"digits": family})}
    overview, page = texts(replace(of, scales=scales), cells())
    for found in tables(overview + "\n\n" + page):
        assert {len(row) for row in found} == {len(found[0])}
    assert "\x1b" not in overview
    assert "<b>" not in overview
    assert not re.search("^# c", overview, re.MULTILINE)
