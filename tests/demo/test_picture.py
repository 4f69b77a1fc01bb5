import itertools
import struct

import matplotlib
import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo.results import outcome, outcomes, result
from potluck.demo.picture import LABEL_GAP, _spread, draw

pytestmark = pytest.mark.page


def drawn(path, of_result):
    draw(of_result, path)
    return path.read_bytes()


def size(png):
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", png[16:24])


def test_equal_results_give_equal_bytes_and_others_give_others(tmp_path):
    first = drawn(tmp_path / "1.png", result())
    assert first == drawn(tmp_path / "2.png", result())
    changed = result(nodes={"large": outcomes(), "small": outcomes(0.5, 0.5, 0.26)})
    assert first != drawn(tmp_path / "3.png", changed)


def test_the_file_says_neither_when_nor_with_what_it_was_drawn(tmp_path):
    png = drawn(tmp_path / "1.png", result())
    assert b"tEXt" not in png
    assert b"tIME" not in png
    assert b"atplotlib" not in png


def test_a_users_settings_do_not_change_the_picture_nor_does_it_change_them(tmp_path):
    first = drawn(tmp_path / "1.png", result())
    with matplotlib.rc_context({"font.size": 40, "axes.facecolor": "red", "savefig.dpi": 30}):
        assert drawn(tmp_path / "2.png", result()) == first
        assert matplotlib.rcParams["font.size"] == 40


def test_the_picture_of_the_demo_is_1600_by_700(tmp_path):
    assert size(drawn(tmp_path / "1.png", result())) == (1600, 700)


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_a_short_demo_is_drawn(tmp_path, rounds):
    nodes = {"n": dict.fromkeys(outcomes(), outcome(0, sampled=(0.5,) * rounds))}
    assert size(drawn(tmp_path / "1.png", result(nodes=nodes))) == (1600, 700)


def test_a_path_may_have_any_ending(tmp_path):
    assert size(drawn(tmp_path / "picture", result())) == (1600, 700)


@given(st.lists(st.floats(0, 1), max_size=6))
def test_labels_keep_their_distance_and_their_order(heights):
    placed = _spread(heights)
    request = sorted(range(len(heights)), key=lambda at: heights[at])
    for low, high in itertools.pairwise(request):
        assert placed[high] - placed[low] >= LABEL_GAP - 1e-9


def test_labels_that_are_far_apart_stay_where_they_are():
    assert _spread([0.9, 0.1, 0.5]) == pytest.approx([0.9, 0.1, 0.5])
