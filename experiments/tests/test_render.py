"""The pages: pure text of the cells, the claims and the notes."""

import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from made_up import claim, experiment, node, results, runs, suite
from potluck_experiments import render
from potluck_experiments.cells import cells_of
from potluck_experiments.results import read_results
from potluck_experiments.suite import SCALES, ExperimentError, read_suite
from potluck_experiments.verdicts import all_of, try_claims, verdict_of_claim
from small_suite import finish, make_suite

ROOT = Path(__file__).parents[2]
PAIR = ("small", "large")


def cells(shift=0.0, *, out=0.4, **changes):
    """Of the pair alone, at half, and with F-TIS, which ends ``shift`` higher."""
    small, large = [0.50, 0.52, 0.48, 0.51, 0.49], [0.70, 0.72, 0.69, 0.70, 0.71]

    def ends(values, by):
        return [node((0.1, v / 2, v + by), out=out, **changes) for v in values]

    return [
        *runs("alone", PAIR, small=ends(small, 0), large=ends(large, 0)),
        *runs("half", PAIR, small=ends(small, -0.1), large=ends(large, -0.1)),
        *runs("f-tis", PAIR, small=ends(small, shift), large=ends(large, shift)),
    ]


def shown(*claims, found=None, **changes):
    """(docs/results.md, the experiment's page)"""
    of = suite(experiment(*(claims or (claim(),)), **changes))
    return texts(of, cells() if found is None else found)


def texts(of, found):
    return tuple(render.pages(of, [results(*found, suite=of)]).values())


def section(text, heading):
    """What stands below one heading of docs/results.md."""
    return text.split(f"\n## {heading}\n")[1].split("\n## ")[0]


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
        name = path.relative_to(ROOT)
        assert path.is_file(), f"there is no {name}: run 'make results' and commit what it writes"
        assert path.read_text(encoding="utf-8") == text, (
            f"{name} is not what the cells, the claims and the notes say: run 'make results' and "
            f"commit what it writes"
        )


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
            tests = try_claims(found, there).values()
            verdict = all_of([verdict_of_claim(its) for its in tests])
            assert found.notes or verdict == "shown", (
                f"{found.name} is {verdict} at scale {there.scale}: write "
                f"experiments/{found.name}/notes.md, what was tried and what likely explains it"
            )


# Where the text comes from


def test_pages_do_not_depend_on_the_order_in_which_cells_are_read():
    assert shown() == shown(found=cells()[::-1])


def test_pages_do_not_depend_on_the_last_bits_of_a_number():
    def moved(it):
        greedy, sampled = (g + 1e-12 for g in it.greedy), (s - 1e-12 for s in it.sampled)
        return msgspec.structs.replace(it, greedy=tuple(greedy), sampled=tuple(sampled))

    found = [
        msgspec.structs.replace(cell, node={name: moved(it) for name, it in cell.node.items()})
        for cell in cells(0.0123)
    ]
    assert shown(found=found) == shown(found=cells(0.0123))


def test_cells_are_read_from_their_files_and_seeds_that_nobody_asked_for_are_not(tmp_path):
    found = make_suite(tmp_path)
    for cell in cells_of(found, found.experiments, "tiny", 3)[2:]:
        finish(found, cell)
    tiny, paper = (read_results(found, scale) for scale in ("tiny", "paper"))
    assert (tiny.planned, len(tiny.cells), len(paper.cells)) == (8, 6, 0)
    text = next(iter(render.pages(found, [tiny, paper]).values()))
    assert "6 runs (cells), of 2 seeds; 2 cells not run yet" in text
    assert "**Scale paper**: not run yet: 0 cells" in text
    (tmp_path / "experiments/cells/tiny/a.b.c.2000.json").write_text("{")
    assert len(read_results(found, "tiny").cells) == 6


# Where the pages are written


def test_pages_are_written_over_older_ones_and_nothing_lies_beside_them(tmp_path):
    found = make_suite(tmp_path)
    written = render.render(found)
    assert [path.relative_to(tmp_path).as_posix() for path in written] == [
        "docs/results.md",
        "experiments/fig04_size/RESULTS.md",
        "experiments/fig13_same/RESULTS.md",
    ]
    text = written[0].read_text(encoding="utf-8")
    written[0].write_text(text + "older\n", encoding="utf-8")
    assert render.render(found) == written
    assert written[0].read_text(encoding="utf-8") == text
    assert [path.name for path in (tmp_path / "docs").iterdir()] == ["results.md"]


@pytest.mark.parametrize("name", ["docs/results.md", "experiments/fig04_size/RESULTS.md"])
def test_a_file_of_somebodys_own_is_not_written_over(tmp_path, name):
    found = make_suite(tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / name).write_text("# My results\n")
    with pytest.raises(ExperimentError, match=r"was not written by potluck reproduce.*move it"):
        render.render(found)
    assert (tmp_path / name).read_text() == "# My results\n"
    assert not (tmp_path / "experiments/fig13_same/RESULTS.md").exists()


def test_a_page_that_is_stopped_half_way_stays_the_older_one(tmp_path, monkeypatch):
    found = make_suite(tmp_path)
    (path, *_) = render.render(found)
    older, true = path.read_bytes() + b"older\n", Path.write_bytes
    path.write_bytes(older)

    def stopped(self, data):
        true(self, data[:1])
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", stopped)
    with pytest.raises(KeyboardInterrupt):
        render.render(found)
    assert path.read_bytes() == older
    assert list(path.parent.iterdir()) == [path]


def test_a_page_says_how_to_run_its_cells_again():
    overview, page = shown()
    assert "Rerun: `potluck reproduce fig04 --again`." in page
    assert "`potluck reproduce --all --scale tiny --again`" in overview


# What the tables say


def test_the_table_of_claims_has_a_row_for_each_claim_with_its_verdict():
    claims = [claim(), claim(id="b", text="far above", lies="above", margin=0.3)]
    text = section(shown(*claims)[0], "All claims")
    head, _, *found = rows(text)
    assert {row[0] for row in found} == {"[Figure 4](../experiments/fig04_size/RESULTS.md)"}
    assert [row[1:4] for row in found] == [
        ["ends where alone ends", "**shown**", "2 / 0 / 0"],
        ["far above", "**refuted**", "0 / 2 / 0"],
    ]
    assert head[-1] == "column addition"
    assert [row[-1] for row in found] == ["shown 2 / 0 / 0", "refuted 0 / 2 / 0"]
    assert "Of 2 claims, 1 shown, 1 refuted and 0 inconclusive." in text


def test_why_there_is_no_verdict_is_said_in_the_table():
    about = claim(measure="out-of-distribution", margin=0.1)
    found = rows(section(shown(about, found=cells(out=0.05))[0], "All claims"))[-1]
    assert found[2:] == ["**inconclusive**", "0 / 0 / 2", "inconclusive 0 / 0 / 2 (floor)"]


def test_a_page_of_an_experiment_has_every_test_with_its_interval():
    about = claim(lies="not below", margin=0.03)
    _, text = shown(about, notes="We tried.", changes=("1 May: x.",))
    assert len(rows(text)) == 4
    first = rows(text)[2]
    assert first[:2] == ["column addition: small + large", "`small`"]
    assert first[2:] == [".000 [.000, .000]", "5", "shown", ""]
    assert "does not lie below -.030." in text
    assert "We tried." in text
    assert "- 1 May: x." in text
    assert "### ends where alone ends. Shown.\n" in text


@pytest.mark.parametrize(
    "shift, said",
    [
        (0.05, "Against alone, it pays for `small` and `large` by greedy accuracy"),
        (-0.05, "Against alone, it costs `small` and `large` by greedy accuracy"),
        (0.0, "Against alone, it makes no difference for `small` and `large`, by"),
    ],
)
def test_whether_sharing_pays_is_said_for_each_pair(shift, said):
    text = section(shown(found=cells(shift))[0], "Does sharing pay?")
    assert f"- **column addition: small + large.** {said}" in text
    assert "Against half, it pays for `small` and `large`" in text
    over, fewer = tables(text)
    assert over[2][2].startswith({0.05: "+.050 [", -0.05: "-.050 [", 0.0: ".000 ["}[shift])
    assert fewer[2][2].endswith("pays")
    assert "of 2 models in their pairs: pays for 2." in text


def test_costs_are_said_over_the_run_and_up_to_the_same_quality():
    def halved(it):
        return msgspec.structs.replace(it, tokens=tuple(t // 2 for t in it.tokens))

    half_price = [
        msgspec.structs.replace(c, cpu_s=90.0, node={m: halved(it) for m, it in c.node.items()})
        if c.setting == "f-tis"
        else c
        for c in cells()
    ]
    text = section(shown(found=half_price)[0], "What it costs")
    whole, same, needed = tables(text)
    # Together one cell of 90 s of core time, alone two of 60 s.
    assert whole[2][2:] == ["0.50 [0.50, 0.50]", "0.75 [0.75, 0.75]"]
    assert "writes 0.50 to 0.50 times the tokens" in text
    assert "take 0.75 to 0.75 times the core time" in text
    assert [row[1] for row in same[2:]] == ["alone", "half"]
    assert same[2][4] == "5 of 5"
    by_tokens, by_core = (float(text.split()[0]) for text in same[2][2:4])
    assert by_tokens == pytest.approx(by_core * 0.5 / 0.75, abs=0.01)
    assert [row[2] for row in needed[2:]] == [".450", ".634"]  # 90 % of .500, of .704
    assert needed[2][4] == "never in 5 of 5"
    assert same[3][2:] == ["-", "-", "0 of 5", "0", "5"]


def test_the_spread_is_said_and_what_it_would_take():
    text = section(shown()[0], "How far the seeds lie apart")
    (found,) = tables(text)
    assert [row[1] for row in found[2:]] == ["`small`", "`large`"]
    assert found[2][3:6] == [".016", ".016", ".000"]  # of .50 .52 .48 .51 .49: sqrt(.001 / 4)
    # (2.776 + .941) sqrt(2) .0158 / sqrt(5) = .0372; of four (3.182 + .978) .0112 = .0465
    assert found[2][6:] == ["4", "2"]
    assert "5 seeds suffice to tell a difference of 0.05 for 2 of 2 models." in text
    # Small gains 0, 8, -8, -1 and 1 hundredths: s = sqrt(130 / 4) / 100.
    uneven = [0.5, 0.6, 0.4, 0.5, 0.5]
    higher = runs("f-tis", PAIR, small=uneven, large=[0.70, 0.72, 0.69, 0.70, 0.71])
    text = section(shown(found=cells()[:-5] + higher)[0], "How far the seeds lie apart")
    # (2.179 + .873) .057 / sqrt(13) = .0483; of twelve (2.201 + .876) .057 / sqrt(12) = .0506
    assert tables(text)[0][2][5:] == [".057", "4", "13"]
    assert "for 1 of 2 models; the others would take 13 (`small`, column addition)." in text


def with_same_model():
    """Its greedy accuracy ends .1 higher, and all else is as alone."""
    ends = [0.60, 0.62, 0.58, 0.61, 0.59]
    nodes = [node((0.1, (v - 0.1) / 2, v)) for v in ends]
    return cells() + runs("f-tis", ("small", "twin"), small=nodes, twin=nodes)


def test_an_a_a_pair_is_none_that_sharing_pays_for():
    for heading in ("Does sharing pay?", "Out of distribution"):
        assert section(shown(found=with_same_model())[0], heading) == section(shown()[0], heading)


def test_an_a_a_pair_says_what_chance_alone_does_once():
    text = section(shown(found=with_same_model())[0], "What chance alone does")
    (found,) = tables(text)
    assert [row[:2] for row in found[2:]] == [["column addition: small + twin", than]
                                              for than in ("alone", "half")]  # fmt: skip
    assert [row[2].split()[0] for row in found[2:]] == ["+.100", "+.200"]
    assert "0 lies outside of 1 of 5 intervals" in text
    assert section(shown()[0], "What chance alone does").strip() == "No A/A pair was run."


@pytest.mark.parametrize("out, mark", [(0.05, "floor"), (0.5, "no difference"), (0.9, "ceiling")])
def test_floor_and_ceiling_are_marked_out_of_distribution(out, mark):
    found = rows(section(shown(found=cells(out=out))[0], "Out of distribution"))[-1]
    assert found[-1].endswith(mark)
    assert found[2].startswith(f"{out:.3f}"[1:])


def test_each_claim_of_an_experiment_has_its_own_tests():
    both = tables(shown(claim(), claim(id="b", node="first", lies="above"))[1])
    assert [len(found) - 2 for found in both] == [2, 1]


def test_a_mean_over_pairs_is_named_with_how_many_they_are():
    about = claim(over="mean of pairs", node="weaker", lies="above", margin=0.0)
    pairs = ("digits.size", "digits.same")
    overview, text = shown(about, pairs=pairs, found=with_same_model())
    (row,) = rows(text)[2:]
    assert row[:2] == ["column addition: mean of 2 pairs", "`weaker`"]
    assert row[2].startswith("+.050 [")  # none in the one, .1 in the other
    assert "in the mean over the pairs of a task" in text
    assert rows(section(overview, "All claims"))[-1][-1] == "shown 1 / 0 / 0"


def test_a_test_that_refutes_without_refuting_the_claim_is_explained():
    # 2.5 +- 2.2 hundredths below -0: refuted at 95 %, and not at 97.5 %.
    below = [0.5 + d for d in (-0.01, -0.05, 0.0, -0.03, -0.035)]
    found = runs("alone", PAIR, small=[0.5] * 5, large=[0.7] * 5)
    found += runs("f-tis", PAIR, small=below, large=[0.75] * 5)
    about = claim(lies="not below", margin=0.0)
    _, text = shown(about, found=found)
    assert [row[4] for row in rows(text)[2:]] == ["refuted", "shown"]
    assert ". Inconclusive." in text
    assert "Of 2 tests 1 refuted at 95 %, none at the level 1 - .05/2" in text
    _, text = shown(about, found=cells(-0.1))
    assert ". Refuted." in text
    assert "none at the level" not in text


# What is not there, and what should not be


def test_without_a_cell_every_page_says_so():
    overview, page = shown(found=[])
    assert "not run yet" in overview
    assert "Not run yet." in page


def test_with_a_single_cell_every_page_is_written():
    for cell in cells():
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
    before_notes = overview[: overview.index("## What was tried")]
    assert "\x1b" not in before_notes
    assert "<b>" not in before_notes
    assert not re.search("^# c", overview, re.MULTILINE)


def test_notes_stand_below_their_experiment_with_headings_as_bold_lines():
    overview, _ = shown(notes="# Likely\n\nNoise.")
    assert "### Figure 4: Size\n\n**Likely**\n\nNoise.\n" in overview


def test_an_experiment_without_a_cell_has_no_picture():
    other = experiment(claim(), name="fig99_other", pairs=("digits.other",))
    of = suite(experiment(claim()), other, pairs={"size": PAIR, "other": ("coder", "writer")})
    written = "".join(texts(of, cells()))
    assert "fig04_size-tiny.png" in written
    assert "fig99_other-tiny.png" not in written
