import struct

import matplotlib
import pytest

from demo.results import course, result, settings
from potluck.demo.picture import draw

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
    changed = result(nodes={"adder": settings(half=[course(0, 0, 0.5, 0.4)])})
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


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_short_demo_is_drawn_in_a_file_of_any_ending(tmp_path, rounds):
    nodes = {"adder": dict.fromkeys(settings(), (course(*[0.0] * rounds),))}
    assert size(drawn(tmp_path / "picture", result(nodes=nodes))) == (1600, 1400)
