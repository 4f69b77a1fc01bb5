import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from potluck.reproduce import page
from potluck.reproduce.cells import cells_of
from potluck.reproduce.judge.verdict import findings_of, verdict_of_claim, verdict_on
from potluck.reproduce.page.claims import claims_table, staleness, what_ran
from potluck.reproduce.page.costs import spread, what_it_costs
from potluck.reproduce.page.experiment import experiment_page
from potluck.reproduce.page.finished import of_results
from potluck.reproduce.page.pays import by_chance, does_it_pay, out_of_distribution
from potluck.reproduce.reading import read_suite
from potluck.reproduce.result import ROOMS, code_digests
from potluck.reproduce.suite import ExperimentError
from reproduce.made_up import claim, experiment, node, results, runs, suite

ROOT = Path(__file__).parents[2]
CODE = dict.fromkeys(ROOMS, "0" * 12)
"""What made-up results ran."""
PAIR = ("small", "large")


def cells(shift=0.0, *, out=0.4, **changes):
    """Of the pair alone, at half, and with F-TIS, which ends ``shift`` higher."""
    small, large = [0.50, 0.52, 0.48, 0.51, 0.49], [0.70, 0.72, 0.69, 0.70, 0.71]

    def ends(values, by):
        return [node((0.1, v / 2, v + by), out=out, **changes) for v in values]

    return results(
        *runs("alone", PAIR, small=ends(small, 0), large=ends(large, 0)),
        *runs("half", PAIR, small=ends(small, -0.1), large=ends(large, -0.1)),
        *runs("f-tis", PAIR, small=ends(small, shift), large=ends(large, shift)),
    )


def shown(*claims, found=None, code=CODE, **changes):
    of = suite(experiment(*(claims or (claim(),)), **changes))
    found = cells() if found is None else found
    return of_results(of, "tiny", found, found, code)


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
    return found, page.read_scales(found, code_digests())


def test_the_committed_pages_are_the_rendering_of_the_committed_cells(committed):
    for path, text in page.pages(*committed).items():
        name = path.relative_to(ROOT)
        assert path.is_file(), f"there is no {name}: run 'make results' and commit what it writes"
        assert path.read_text(encoding="utf-8") == text, (
            f"{name} is not what the cells, the claims and the notes say: run 'make results' and "
            f"commit what it writes. If you changed none of these, you changed code that the "
            f"cells ran (see 'Stale cells' in docs/results.md), which the page has to say; it "
            f"does so by room, so the next change there asks nothing of you"
        )


def test_every_picture_of_the_committed_pages_is_there_and_no_other(committed):
    named = set()
    for path, text in page.pages(*committed).items():
        for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
            if "://" not in link:
                target = (path.parent / link).resolve()
                assert target.is_file() or target in page.pages(*committed), f"{path}: {link}"
                named.add(target)
    pictures = set((ROOT / "docs/results").glob("*.png"))
    assert pictures == {target for target in named if target.suffix == ".png"}


def test_every_experiment_that_is_not_shown_says_what_was_tried(committed):
    for there in committed[1]:
        if there.missing:
            continue  # nothing to explain yet
        for found in committed[0].experiments:
            tests = findings_of(there.suite, found, there.scale, there.results)
            if tests and verdict_on(tests) != "shown":
                assert found.notes, (
                    f"{found.name} is {verdict_on(tests)} at scale {there.scale}: write "
                    f"experiments/{found.name}/notes.md, what was tried and what likely explains it"
                )


# Where the text comes from


def test_pages_do_not_depend_on_the_order_in_which_cells_are_read():
    found = cells()
    backwards = dict(reversed(found.items()))
    both = [page.overview(t.suite, [t]) for t in (shown(found=found), shown(found=backwards))]
    assert both[0] == both[1]


def test_pages_do_not_depend_on_the_last_bits_of_a_number():
    found = {
        name: msgspec.structs.replace(
            cell,
            node={
                model: msgspec.structs.replace(
                    it,
                    greedy=tuple(g + 1e-12 for g in it.greedy),
                    sampled=tuple(s - 1e-12 for s in it.sampled),
                )
                for model, it in cell.node.items()
            },
        )
        for name, cell in cells(0.0123).items()
    }
    for render in (claims_table, does_it_pay, what_it_costs, spread, out_of_distribution):
        assert render(shown(found=found)) == render(shown(found=cells(0.0123)))


def written_suite(tmp_path):
    """Two models and two settings as files, without a cell."""
    (tmp_path / "fig04").mkdir()
    recipe = (ROOT / "experiments/tiny/digits.toml").read_text(encoding="utf-8")
    for name, text in {
        "digits.toml": recipe,
        "settings.toml": '[alone]\ntitle = "alone"\nalone = true\n[f-tis]\ntitle = "F-TIS"\n',
        "tiny.toml": 'seeds = 2\n[family.digits]\ntitle = "sums"\n'
        'model = { small = "digits.toml#small", large = "digits.toml#large" }\n'
        'pair = { size = ["small", "large"] }\n',
        "paper.toml": "family = {}\n",
        "fig04/experiment.toml": 'title = "t"\nfigure = "4"\nsettings = ["alone", "f-tis"]\n'
        'pairs = { tiny = ["digits.size"] }\n',
        "fig04/expected.toml": '[[claim]]\nid = "c"\ntext = "t"\nsetting = "f-tis"\n'
        'than = "alone"\nlies = "above"\n',
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "cells/tiny").mkdir(parents=True)
    return read_suite(tmp_path)


def write_cells(found, chosen):
    """The files of these cells, all with the same curve."""
    for cell in chosen:
        made = next(iter(cells().values()))
        result = msgspec.structs.replace(
            made,
            family=cell.family,
            models=cell.models,
            setting=cell.setting,
            seed=cell.seed,
            recipe=cell.digest,
            node=dict.fromkeys(cell.models, node()),
        )
        path = found.folder / f"cells/tiny/{cell.name}.json"
        path.write_bytes(msgspec.json.encode(result))


def test_cells_are_read_from_their_files_with_seeds_that_nobody_asked_for(tmp_path):
    found = written_suite(tmp_path)
    assert "not run yet: 6 cells" in what_ran(page.read_scales(found, CODE)[0])
    write_cells(found, cells_of(found, found.experiments, "tiny", 3)[2:])
    tiny, paper = page.read_scales(found, CODE)
    assert (len(tiny.planned), len(tiny.results), tiny.missing) == (6, 7, 2)
    assert {cell.seed for cell in tiny.of(found.experiments[0]).values()} == {0, 1, 2}
    assert not paper.results
    assert "7 runs (cells), of 3 seeds; 2 cells not run yet" in what_ran(tiny)


@pytest.mark.parametrize(
    "name",
    ["a.b.c.2000", "digits.small.none.2000", "digits.small.alone.x", "digits.small.alone.007"],
)
def test_a_file_that_is_no_cells_is_left_alone(tmp_path, name):
    found = written_suite(tmp_path)
    (tmp_path / f"cells/tiny/{name}.json").write_text("{")
    assert not page.read_scales(found, CODE)[0].results


def test_a_seed_that_nobody_can_mean_is_refused(tmp_path):
    found = written_suite(tmp_path)
    (tmp_path / "cells/tiny/digits.small.alone.1000.json").write_text("{")
    with pytest.raises(ExperimentError, match=r"alone\.1000\.json is of seed 1000; .* 0 to 999"):
        page.read_scales(found, CODE)


# Where the pages are written


def written_below(tmp_path):
    """A suite whose pages lie in tmp_path/docs and below tmp_path/experiments."""
    (tmp_path / "experiments").mkdir()
    return written_suite(tmp_path / "experiments")


def test_pages_are_written_over_older_ones_and_nothing_lies_beside_them(tmp_path):
    found = written_below(tmp_path)
    written = page.render(found)
    assert [path.relative_to(tmp_path).as_posix() for path in written] == [
        "docs/results.md", "experiments/fig04/RESULTS.md",
    ]  # fmt: skip
    text = written[0].read_text(encoding="utf-8")
    written[0].write_text(text + "older\n", encoding="utf-8")
    assert page.render(found) == written
    assert written[0].read_text(encoding="utf-8") == text
    assert [path.name for path in (tmp_path / "docs").iterdir()] == ["results.md"]


@pytest.mark.parametrize("name", ["docs/results.md", "experiments/fig04/RESULTS.md"])
def test_a_file_of_somebodys_own_is_not_written_over(tmp_path, name):
    found = written_below(tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / name).write_text("# My results\n")
    with pytest.raises(ExperimentError, match=r"was not written by potluck reproduce.*move it"):
        page.render(found)
    assert (tmp_path / name).read_text() == "# My results\n"
    both = [tmp_path / "docs/results.md", tmp_path / "experiments/fig04/RESULTS.md"]
    assert [path for path in both if path.exists()] == [tmp_path / name]


def test_a_page_that_is_stopped_half_way_stays_the_older_one(tmp_path, monkeypatch):
    found = written_below(tmp_path)
    (path, *_) = page.render(found)
    older, true = path.read_bytes() + b"older\n", Path.write_text
    path.write_bytes(older)

    def stopped(self, text, **how):
        true(self, text[:1], **how)
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_text", stopped)
    with pytest.raises(KeyboardInterrupt):
        page.render(found)
    assert path.read_bytes() == older
    assert list(path.parent.iterdir()) == [path]


def test_a_picture_that_is_stopped_half_way_stays_the_older_one(tmp_path, monkeypatch):
    found = written_below(tmp_path)
    write_cells(found, cells_of(found, found.experiments, "tiny", 2))
    path = tmp_path / "docs/results/claims-tiny.png"
    path.parent.mkdir(parents=True)
    path.write_text("older")

    def stopped(there, path):
        path.write_text("half")
        raise KeyboardInterrupt

    monkeypatch.setattr("potluck.reproduce.page.forest.draw_forest", stopped)
    with pytest.raises(KeyboardInterrupt):
        page.render(found)
    assert path.read_text() == "older"
    assert list(path.parent.iterdir()) == [path]


def test_a_page_says_how_to_run_its_cells_again():
    there = shown()
    text = experiment_page(there.suite.experiments[0], [there])
    assert "Rerun: `potluck reproduce fig04 --again`." in text
    assert "`potluck reproduce --all --scale tiny --again`" in what_ran(there)


# What the tables say


def test_the_table_of_claims_has_a_row_for_each_claim_with_its_verdict():
    claims = [claim(), claim(id="b", text="far above", lies="above", margin=0.3)]
    there = shown(*claims)
    head, _, *found = rows(claims_table(there))
    assert {row[0] for row in found} == {"[Figure 4](../experiments/fig04_size/RESULTS.md)"}
    assert [row[1:4] for row in found] == [
        ["ends where alone ends", "**shown**", "2 / 0 / 0"],
        ["far above", "**refuted**", "0 / 2 / 0"],
    ]
    assert head[-1] == "column addition"
    assert [row[-1] for row in found] == ["shown 2 / 0 / 0", "refuted 0 / 2 / 0"]
    assert "Of 2 claims, 1 shown, 1 refuted and 0 inconclusive." in claims_table(there)


def test_why_there_is_no_verdict_is_said_in_the_table():
    about = claim(measure="out-of-distribution", margin=0.1)
    found = rows(claims_table(shown(about, found=cells(out=0.05))))[-1]
    assert found[2:] == ["**inconclusive**", "0 / 0 / 2", "inconclusive 0 / 0 / 2 (floor)"]


def test_a_page_of_an_experiment_has_every_test_with_its_interval():
    there = shown(claim(lies="not below", margin=0.03), notes="We tried.", changes=("1 May: x.",))
    text = experiment_page(there.suite.experiments[0], [there])
    assert len(rows(text)) == 4
    first = rows(text)[2]
    assert first[:2] == ["column addition: small + large", "`small`"]
    assert first[2:] == [".000 [.000, .000]", "5", "shown", ""]
    assert "does not lie below -.030." in text
    assert "We tried." in text
    assert "- 1 May: x." in text
    tests = findings_of(there.suite, there.suite.experiments[0], "tiny", there.results)
    assert f"### ends where alone ends. {verdict_of_claim(tests).capitalize()}.\n" in text


@pytest.mark.parametrize(
    "shift, said",
    [
        (0.05, "Against alone, it pays for `small` and `large` by greedy accuracy"),
        (-0.05, "Against alone, it costs `small` and `large` by greedy accuracy"),
        (0.0, "Against alone, it makes no difference for `small` and `large`, by"),
    ],
)
def test_whether_sharing_pays_is_said_for_each_pair(shift, said):
    text = does_it_pay(shown(found=cells(shift)))
    assert f"- **column addition: small + large.** {said}" in text
    assert "Against half, it pays for `small` and `large`" in text
    over, fewer = tables(text)
    assert over[2][2].startswith({0.05: "+.050 [", -0.05: "-.050 [", 0.0: ".000 ["}[shift])
    assert fewer[2][2].endswith("pays")
    assert "of 2 models in their pairs: pays for 2." in text


def test_costs_are_said_over_the_run_and_up_to_the_same_quality():
    found = cells()
    half_price = {
        name: msgspec.structs.replace(
            cell,
            cpu_s=90.0,
            node={
                m: msgspec.structs.replace(it, tokens=tuple(t // 2 for t in it.tokens))
                for m, it in cell.node.items()
            },
        )
        if cell.setting == "f-tis"
        else cell
        for name, cell in found.items()
    }
    text = what_it_costs(shown(found=half_price))
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
    text = spread(shown())
    (found,) = tables(text)
    assert [row[1] for row in found[2:]] == ["`small`", "`large`"]
    assert found[2][3:6] == [".016", ".016", ".000"]  # of .50 .52 .48 .51 .49: sqrt(.001 / 4)
    # (2.776 + .941) sqrt(2) .0158 / sqrt(5) = .0372; of four (3.182 + .978) .0112 = .0465
    assert found[2][6:] == ["4", "2"]
    assert "5 seeds suffice to tell a difference of 0.05 for 2 of 2 models." in text
    # Small gains 0, 8, -8, -1 and 1 hundredths: s = sqrt(130 / 4) / 100.
    uneven = [0.5, 0.6, 0.4, 0.5, 0.5]
    higher = results(*runs("f-tis", PAIR, small=uneven, large=[0.70, 0.72, 0.69, 0.70, 0.71]))
    text = spread(shown(found=cells() | higher))
    # (2.179 + .873) .057 / sqrt(13) = .0483; of twelve (2.201 + .876) .057 / sqrt(12) = .0506
    assert tables(text)[0][2][5:] == [".057", "4", "13"]
    assert "for 1 of 2 models; the others would take 13 (`small`, column addition)." in text


def with_twins():
    """Of which the greedy accuracy ends .1 higher, and all else is as alone."""
    ends = [0.60, 0.62, 0.58, 0.61, 0.59]
    nodes = [node((0.1, (v - 0.1) / 2, v)) for v in ends]
    return cells() | results(*runs("f-tis", ("small", "twin"), small=nodes, twin=nodes))


def test_twins_are_no_pair_that_sharing_pays_for():
    there = shown(found=with_twins())
    assert does_it_pay(there) == does_it_pay(shown())
    assert out_of_distribution(there) == out_of_distribution(shown())


def test_twins_say_what_chance_alone_does_once():
    text = by_chance(shown(found=with_twins()))
    (found,) = tables(text)
    assert [row[:2] for row in found[2:]] == [["column addition: small + twin", than]
                                              for than in ("alone", "half")]  # fmt: skip
    assert [row[2].split()[0] for row in found[2:]] == ["+.100", "+.200"]
    assert "0 lies outside of 1 of 5 intervals" in text
    assert by_chance(shown()) == "No twins were run."


@pytest.mark.parametrize("out, mark", [(0.05, "floor"), (0.5, "no difference"), (0.9, "ceiling")])
def test_floor_and_ceiling_are_marked_out_of_distribution(out, mark):
    found = rows(out_of_distribution(shown(found=cells(out=out))))[-1]
    assert found[-1].endswith(mark)
    assert found[2].startswith(f"{out:.3f}"[1:])


def test_each_claim_of_an_experiment_has_its_own_tests():
    there = shown(claim(), claim(id="b", node="first", lies="above"))
    both = tables(experiment_page(there.suite.experiments[0], [there]))
    assert [len(found) - 2 for found in both] == [2, 1]


def test_a_mean_over_pairs_is_named_with_how_many_they_are():
    about = claim(over="mean of pairs", node="weaker", lies="above", margin=0.0)
    there = shown(about, pairs=("digits.size", "digits.same"), found=with_twins())
    text = experiment_page(there.suite.experiments[0], [there])
    (row,) = rows(text)[2:]
    assert row[:2] == ["column addition: mean of 2 pairs", "`weaker`"]
    assert row[2].startswith("+.050 [")  # none in the one, .1 in the other
    assert "in the mean over the pairs of a task" in text
    assert rows(claims_table(there))[-1][-1] == "shown 1 / 0 / 0"


def test_a_test_that_refutes_without_refuting_the_claim_is_explained():
    # 2.5 +- 2.2 hundredths below -0: refuted at 95 %, and not at 97.5 %.
    below = {m: [e + d for e, d in zip(ends, (-0.01, -0.05, 0.0, -0.03, -0.035), strict=True)]
             for m, ends in {"small": [0.5] * 5}.items()}  # fmt: skip
    found = results(
        *runs("alone", PAIR, small=[0.5] * 5, large=[0.7] * 5),
        *runs("f-tis", PAIR, **below, large=[0.75] * 5),
    )
    there = shown(claim(lies="not below", margin=0.0), found=found)
    text = experiment_page(there.suite.experiments[0], [there])
    assert [row[4] for row in rows(text)[2:]] == ["refuted", "shown"]
    assert ". Inconclusive." in text
    assert "Of 2 tests 1 refuted at 95 %, none at the level 1 - .05/2" in text
    refuted = shown(claim(lies="not below", margin=0.0), found=cells(-0.1))
    text = experiment_page(refuted.suite.experiments[0], [refuted])
    assert ". Refuted." in text
    assert "none at the level" not in text


# Stale cells


def test_a_stale_cell_is_marked_with_the_rooms_that_have_changed():
    assert staleness([shown()]) == "All cells ran the code as it is."
    there = shown(code=CODE | {"node": "1" * 12, "tasks": "1" * 12})
    assert rows(staleness([there]))[-1][1:] == ["tiny", "15 of 15", "node, tasks"]
    assert "†" in rows(claims_table(there))[-1][0]
    assert "†" not in claims_table(shown())


def test_a_second_change_in_a_room_leaves_the_pages_as_they_are():
    first, second = (shown(code=CODE | {"node": digit * 12}) for digit in "12")
    assert page.overview(first.suite, [first]) == page.overview(second.suite, [second])


def test_only_the_overview_depends_on_the_code():
    now, later = shown(), shown(code=CODE | {"node": "1" * 12})
    experiment_of = now.suite.experiments[0]
    assert experiment_page(experiment_of, [now]) == experiment_page(experiment_of, [later])


# What is not there, and what should not be


def test_without_a_cell_every_page_says_so():
    there = shown(found={})
    text = page.overview(there.suite, [there])
    assert "not run yet" in text
    assert "No cell was run." in text
    assert "Not run yet." in experiment_page(there.suite.experiments[0], [there])


def test_with_a_single_cell_every_page_is_written():
    found = cells()
    for name in found:
        there = shown(found={name: found[name]})
        text = page.overview(there.suite, [there])
        text += experiment_page(there.suite.experiments[0], [there])
        assert "nan" not in text


HOSTILE = "a | b\n# c <b> `d` $e$ \x1b[31m"


def test_no_text_from_outside_breaks_a_table():
    there = shown(claim(text=HOSTILE), notes=HOSTILE)
    titled = replace(there.suite.experiments[0], title=HOSTILE)
    of = replace(there.suite, experiments=(titled,))
    tiny = of.scales["tiny"]
    family = msgspec.structs.replace(tiny.family["digits"], title=HOSTILE)
    scales = {**of.scales, "tiny": msgspec.structs.replace(tiny, family={"digits": family})}
    there = replace(there, suite=replace(of, scales=scales))
    text = page.overview(there.suite, [there])
    for found in tables(text + "\n\n" + experiment_page(titled, [there])):
        assert {len(row) for row in found} == {len(found[0])}
    before_notes = text[: text.index("## What was tried")]
    assert "\x1b" not in before_notes
    assert "<b>" not in before_notes
    assert not re.search("^# c", text, re.MULTILINE)


def test_notes_stand_below_their_experiment_with_headings_as_bold_lines():
    there = shown(notes="# Likely\n\nNoise.")
    text = page.overview(there.suite, [there])
    assert "### Figure 4: Size\n\n**Likely**\n\nNoise.\n" in text


def test_an_experiment_without_a_cell_has_no_picture():
    other = experiment(claim(), name="fig99_other", pairs=("digits.other",))
    of = suite(experiment(claim()), other, pairs={"size": PAIR, "other": ("coder", "writer")})
    found = cells()
    there = of_results(of, "tiny", found, found, CODE)
    assert [each.name for each in page.drawn(of, there)] == ["fig04_size"]
    text = page.overview(of, [there])
    assert "fig04_size-tiny.png" in text
    assert "fig99_other-tiny.png" not in text + experiment_page(other, [there])
