"""What ``experiments/`` says, and what is refused there."""

import re
import shutil
from pathlib import Path

import pytest

from potluck_experiments.cells import cells_of
from potluck_experiments.suite import SCALES, ExperimentError, read_suite
from small_suite import EXPECTED, EXPERIMENT, SCALE, SETTINGS, make_suite

REPOSITORY = Path(__file__).parents[2]


def test_a_suite_is_read_as_it_is_written(tmp_path):
    suite = make_suite(tmp_path, others={"fig04_size/notes.md": "\nWhat a person says.\n"})
    assert [e.name for e in suite.experiments] == ["fig04_size", "fig13_same"]
    size, same = suite.experiments
    assert (size.title, size.figure, same.figure) == ("Two sizes", "4", "")
    assert size.pairs == {"tiny": ("digits.size",)}
    assert (size.notes, same.notes) == ("What a person says.", "")
    (claim,) = size.claims
    assert (claim.node, claim.measure, claim.when, claim.margin) == ("each", "greedy", "end", 0.0)
    assert suite.models("tiny", "digits.same") == ("small", "twin")
    assert suite.settings["half"].problems == 0.5
    assert suite.scales["paper"].seeds == 2


def test_an_experiment_is_found_by_how_its_name_begins_unless_more_than_one_does(tmp_path):
    suite = make_suite(tmp_path)
    for name in ("fig04", "fig04_size", "fig1"):
        assert suite.find(name).name.startswith(name)
    for name in ("fig4", "fig"):
        with pytest.raises(ExperimentError, match=f"experiment '{name}'; there are fig04, fig13"):
            suite.find(name)


@pytest.mark.parametrize(
    "file, old, new, told",
    [
        ("settings.toml", "alone = true", "alnoe = true",
         r"settings.toml: .*alnoe.*; did you mean 'alone'"),
        ("settings.toml", "0.5", "1.5", r"settings.toml: Expected `float` <= 1"),
        ("tiny.toml", 'size = ["small", "large"]', 'size = ["small", "lagre"]',
         r"tiny.toml: \[family.digits.pair\] size names the model 'lagre'; there are small, large"),
        ("tiny.toml", "[family.digits]", "[family.digits", r"cannot read .*tiny.toml"),
        ("fig04_size/experiment.toml", '"alone"]', '"lone"]',
         r"experiment.toml names the setting 'lone'; there are f-tis, nois, alone, half"),
        ("fig04_size/experiment.toml", '["f-tis", "alone"]', '["f-tis"]',
         r"claim 'ends' names the setting 'alone'; there are f-tis"),
        ("fig04_size/experiment.toml", "digits.size", "digits.seize",
         r"names the pair 'digits.seize'; there are digits.size, digits.same"),
        ("fig04_size/expected.toml", '"above"', '"over"', r"expected.toml: Invalid enum value"),
        ("fig04_size/expected.toml", '"alone"', '"anole"', "names the setting 'anole'"),
        ("fig04_size/expected.toml", "[[claim]]", EXPECTED + "[[claim]]", "has two claims"),
        ("tiny.toml", '["small", "large"]', '["small", "small"]',
         r"tiny.toml: \[family.digits.pair\] size names a model twice"),
        ("tiny.toml", "seeds = 2", "seeds = 1001", r"tiny.toml: Expected `int` <= 1000"),
        ("fig04_size/expected.toml", '"above"', '"above"\nmargin = nan', "nan is no finite number"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_file(tmp_path, file, old, new, told):
    texts = {
        "settings.toml": SETTINGS,
        "tiny.toml": SCALE,
        "fig04_size/experiment.toml": EXPERIMENT,
        "fig04_size/expected.toml": EXPECTED,
    }
    assert old in texts[file]
    with pytest.raises(ExperimentError, match=told):
        make_suite(tmp_path, others={file: texts[file].replace(old, new, 1)})


def test_a_folder_that_is_not_whole_says_what_it_lacks(tmp_path):
    with pytest.raises(ExperimentError, match="run this in a clone of the repository"):
        read_suite(tmp_path)
    suite = make_suite(tmp_path, recipe="node = 3")
    with pytest.raises(ExperimentError, match=r"small is .*, but the nodes .* are missing"):
        cells_of(suite, suite.experiments, "tiny", 1)
    (notes := suite.folder / "fig04_size" / "notes.md").write_bytes(b"\xff")
    with pytest.raises(ExperimentError, match=r"cannot read .*notes\.md.*write it as UTF-8"):
        read_suite(suite.folder)
    notes.rename(notes.with_suffix(".txt"))
    notes.with_name("expected.toml").unlink()
    with pytest.raises(ExperimentError, match=r"there is no .*expected\.toml"):
        read_suite(suite.folder)


@pytest.mark.page
@pytest.mark.parametrize("scale", [scale for scale in SCALES if scale != "real"])
def test_every_experiment_of_the_repository_has_recipes_that_can_run(scale):
    suite = read_suite(REPOSITORY / "experiments")
    cells = cells_of(suite, suite.experiments, scale, 1)
    assert cells
    assert len({cell.name for cell in cells}) == len(cells)
    assert len({cell.digest for cell in cells}) == len(cells)
    for experiment in suite.experiments:
        assert experiment.claims
        assert set(experiment.pairs) <= set(SCALES)


@pytest.mark.page
def test_an_experiment_is_added_by_the_two_files_that_the_page_shows(tmp_path):
    page = (REPOSITORY / "docs" / "experiments.md").read_text(encoding="utf-8")
    for folder in ("experiments", "recipes"):
        shutil.copytree(REPOSITORY / folder, tmp_path / folder)
    blocks = [part.split("```")[0] for part in page.split("```toml\n")[1:]]
    names = re.findall(r"`(experiments/mine\S+\.toml)`", page)
    assert len(names) == 2
    for name, block in zip(names, blocks, strict=True):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(block)
    suite = read_suite(tmp_path / "experiments")
    mine = suite.find("mine1")
    assert (mine.name, mine.claims[0].id) == ("mine1_small-g", "small-limit-is-early")
    for scale in ("tiny", "paper"):
        assert cells_of(suite, [mine], scale, 1)
    # What the page names is there.
    for name in re.findall(r"potluck reproduce ((?:[a-z]+\d+ ?)+)", page):
        assert all(map(suite.find, name.split()))
    assert {"f-tis", "alone", "half"} <= {*suite.settings}
