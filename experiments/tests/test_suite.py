"""What ``experiments/`` says, and what is refused there."""

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


@pytest.mark.parametrize("name", ["fig04", "fig04_size", "fig1"])
def test_an_experiment_is_found_by_how_its_name_begins(tmp_path, name):
    assert make_suite(tmp_path).find(name).name.startswith(name)


@pytest.mark.parametrize("name", ["fig4", "fig"])
def test_a_name_that_no_experiment_or_more_than_one_has_is_told_with_what_there_is(tmp_path, name):
    with pytest.raises(ExperimentError, match=f"no experiment '{name}'; there are fig04, fig13"):
        make_suite(tmp_path).find(name)


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


def test_notes_that_are_not_utf_8_are_named(tmp_path):
    suite = make_suite(tmp_path)
    (suite.folder / "fig04_size" / "notes.md").write_bytes(b"\xff")
    with pytest.raises(ExperimentError, match=r"cannot read .*notes\.md.*write it as UTF-8"):
        read_suite(suite.folder)


def test_a_recipe_without_nodes_is_named(tmp_path):
    suite = make_suite(tmp_path, recipe="node = 3")
    with pytest.raises(ExperimentError, match=r"small is .*, but the nodes .* are missing"):
        cells_of(suite, suite.experiments, "tiny", 1)


def test_a_folder_without_experiments_says_where_they_would_be(tmp_path):
    with pytest.raises(ExperimentError, match="run this in a clone of the repository"):
        read_suite(tmp_path)
    make_suite(tmp_path)
    (tmp_path / "experiments" / "fig04_size" / "expected.toml").unlink()
    with pytest.raises(ExperimentError, match=r"there is no .*expected\.toml"):
        read_suite(tmp_path / "experiments")


@pytest.mark.page
@pytest.mark.parametrize("scale", SCALES)
def test_every_experiment_of_the_repository_has_recipes_that_can_run(scale):
    suite = read_suite(REPOSITORY / "experiments")
    cells = cells_of(suite, suite.experiments, scale, 1)
    assert cells
    assert len({cell.name for cell in cells}) == len(cells)
    assert len({cell.digest for cell in cells}) == len(cells)
    for experiment in suite.experiments:
        assert experiment.claims
        assert set(experiment.pairs) <= set(SCALES)
