"""The example of docs/experiments.md, read as it stands there."""

import re
import shutil
from pathlib import Path

import pytest

from potluck_experiments.cells import cells_of
from potluck_experiments.suite import read_suite

pytestmark = pytest.mark.page

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")


@pytest.fixture
def suite(tmp_path):
    """The repository's, with the page's example beside what is there."""
    shutil.copytree(ROOT / "experiments", tmp_path / "experiments")
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    blocks = [part.split("```")[0] for part in PAGE.split("```toml\n")[1:]]
    names = re.findall(r"`(experiments/mine\S+\.toml)`", PAGE)
    assert len(names) == len(blocks) == 2
    for name, block in zip(names, blocks, strict=True):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(block)
    return read_suite(tmp_path / "experiments")


def test_an_experiment_is_added_by_the_two_files_that_the_page_shows(suite):
    mine = suite.find("mine1")
    assert (mine.name, [claim.id for claim in mine.claims]) == (
        "mine1_small-g",
        ["small-limit-is-early"],
    )
    for scale in ("tiny", "paper"):
        assert cells_of(suite, [mine], scale, 1)


def test_what_the_page_names_is_there(suite):
    for name in re.findall(r"potluck reproduce ((?:[a-z]+\d+ ?)+)", PAGE):
        for word in name.split():
            assert suite.find(word)
    for setting in ("f-tis", "alone", "half"):
        assert setting in suite.settings
