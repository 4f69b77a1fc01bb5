import io
import re

import pytest
from rich.console import Console

from dashboard.run_folders import HOSTILE, STEERS, metrics
from potluck.dashboard.live import LiveDisplay


class Clock:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


def display(terminal=False, clock=None, width=80, **changes):
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=width, legacy_windows=False)
    arguments = {"rounds": 40, "clock": clock or Clock(), **changes}
    return LiveDisplay(console, **arguments), out


def without_colours(text):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_without_a_terminal_a_round_is_one_plain_line():
    live, out = display()
    with live:
        live.round_done("small", metrics(4))
    assert out.getvalue() == (
        "round  5/40  small     reward 0.250  own 0.500  filtered  20%  1.8 s\n"
    )


def test_what_went_wrong_in_a_round_stands_in_its_line():
    live, out = display()
    with live:
        live.round_done("small", metrics(0, missing=["large"], late=3, dropped_nonfinite=2))
    assert out.getvalue().endswith("  missing: large  late: 3  not finite: 2\n")


TROUBLES = {
    "late": ({"late": 3, "late_used": 2}, "late: 3, 2 used"),
    "late, and of no use": ({"late": 3, "late_used": 0}, "late: 3, 0 used"),
    "late, of a run of before": ({"late": 3}, "late: 3"),
    "too few": ({"too_few": 4}, "alone in their group: 4"),
    "too many": ({"over_share": 5}, "beyond strangers' share: 5"),
    "refused": ({"refused": {"mallory": 2, "eve": 1}}, "refused: mallory 2, eve 1"),
    "quarantined": ({"quarantined": ["eve", "mallory"]}, "quarantined: eve, mallory"),
    "unasked": ({"unasked": 1}, "unasked: 1"),
    "unusable": ({"unusable": 1}, "unusable: 1"),
}


@pytest.mark.parametrize("told, shown", TROUBLES.values(), ids=TROUBLES)
def test_each_trouble_of_a_round_is_told_if_there_was_any(told, shown):
    live, out = display()
    nothing = {key: type(value)() for key, value in told.items()}
    with live:
        live.round_done("small", metrics(0, **told))
        live.round_done("small", metrics(0, **nothing))
    first, second = out.getvalue().splitlines()
    assert first.endswith(f"1.8 s  {shown}")
    assert second.endswith("1.8 s")


def test_many_strangers_do_not_fill_the_screen():
    live, out = display()
    with live:
        refused = {f"stranger-{at}": at for at in range(1, 100)}
        live.round_done("small", metrics(0, refused=refused, quarantined=list(refused)))
    assert len(out.getvalue()) < 300


def test_a_round_without_a_step_says_so():
    live, out = display()
    with live:
        live.round_done("small", metrics(0, updates=0))
    assert out.getvalue().endswith("  no step: no completion was better than its group\n")


def test_statistics_that_do_not_exist_are_dashes():
    live, out = display()
    with live:
        live.round_done("small", {"round": 0, "reward_mean": None, "seconds": {"write": None}})
    assert out.getvalue() == "round  1/40  small     reward -  own -  filtered    -  0.0 s\n"


def test_an_evaluation_is_one_line():
    live, out = display()
    with live:
        live.evaluated("small", {"round": 5, "validation": 0.52, "problems": 200})
        other = {"out_of_distribution": 0.31, "out_of_distribution_problems": 50}
        live.evaluated("small", {"round": 40, "validation": 0.6, "problems": 200} | other)
    assert out.getvalue() == (
        "round  5/40  small     validation 0.520 of 200\n"
        "round 40/40  small     validation 0.600 of 200  out of distribution 0.310 of 50\n"
    )


def test_without_a_terminal_phases_speak_at_most_every_ten_seconds():
    clock = Clock()
    live, out = display(clock=clock)
    with live:
        for at in range(201):
            live.phase("small", "write", at, 201, "12 tokens/s")
            clock.now_s += 0.125
    # 25 seconds: a line after 10 and one after 20.
    assert [line.split()[2] for line in out.getvalue().splitlines()] == ["80/201", "160/201"]
    assert out.getvalue().startswith("small write 80/201 12 tokens/s\n")


def test_without_a_terminal_each_node_has_its_ten_seconds():
    clock = Clock()
    live, out = display(clock=clock)
    with live:
        live.phase("small", "write", 0, 9)
        clock.now_s += 5
        live.phase("large", "write", 0, 9)
        clock.now_s += 5
        live.phase("small", "write", 1, 9)
        live.phase("large", "write", 1, 9)
        clock.now_s += 5
        live.phase("small", "write", 2, 9)
        live.phase("large", "write", 2, 9)
    assert out.getvalue() == "small write 1/9\nlarge write 2/9\n"


def test_waiting_counts_nodes_and_says_so():
    clock = Clock()
    live, out = display(clock=clock)
    with live:
        live.phase("small", "wait", 0, 3)
        clock.now_s += 10
        live.phase("small", "wait", 2, 3)
    assert out.getvalue() == "small wait 2/3 nodes are here\n"


def test_without_a_terminal_short_phases_say_nothing():
    live, out = display()
    with live:
        for name in ("write", "learn", "evaluate"):
            live.phase("small", name, 1, 1)
    assert out.getvalue() == ""


def test_without_a_terminal_nothing_is_coloured_and_nothing_is_folded():
    live, out = display()
    with live:
        live.round_done("a-node-with-a-name-of-32-letters", metrics(0, missing=["large"] * 9))
        live.say("x" * 500)
    assert len(out.getvalue().splitlines()) == 2
    assert "\x1b" not in out.getvalue()


def test_in_a_terminal_there_are_bars_for_the_rounds_and_for_the_phase():
    live, out = display(terminal=True, first_round=3)
    with live:
        live.phase("small", "write", 7, 9, "a note")
        live.round_done("small", metrics(3))
    text = without_colours(out.getvalue())
    assert "rounds" in text
    assert "━" in text
    assert re.search(r" 4/40", text)
    assert re.search(r"small write .* 7/9 .*a note", text)
    assert "round  4/40  small     reward 0.250" in text


def last_bars(live):
    console = Console(file=io.StringIO(), width=live._console.width)
    console.print(live._progress.get_renderable())
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_in_a_terminal_each_node_has_a_bar_of_its_own():
    live, _ = display(terminal=True)
    with live:
        live.phase("a", "write", 1, 9)
        live.phase("longer", "learn", 2, 9)
        live.phase("a", "wait", 1, 2)
        rounds, first, second = last_bars(live)
    assert rounds.startswith("rounds")
    assert re.fullmatch(r"a      wait +━+ +1/2 .* nodes are here", first)
    assert re.fullmatch(r"longer learn +━+ +2/9 .*", second)


def test_a_bar_begins_anew_with_each_phase():
    live, _ = display(terminal=True)
    with live:
        live.phase("a", "write", 9, 9)
        finished = live._progress.tasks[1].finished
        live.phase("a", "learn", 0, 9)
        assert (finished, live._progress.tasks[1].finished) == (True, False)


@pytest.mark.parametrize("width", [60, 80])
def test_bars_of_four_nodes_fit_a_narrow_terminal(width):
    live, _ = display(terminal=True, width=width)
    with live:
        for name in ("north", "south", "east", "a-node-with-a-long-name"):
            live.phase(name, "evaluate", 100, 200)
        lines = last_bars(live)
    assert len(lines) == 5
    assert all("…" not in line for line in lines)
    assert all(re.search(r"100/200 +0:00:0", line) for line in lines[1:]), lines


def test_markup_in_the_bars_is_text():
    live, out = display(terminal=True)
    with live:
        live.phase("[red]node", "[b]write", 0, 1, "[red]note")
    text = without_colours(out.getvalue())
    assert "[red]node [b]write" in text
    assert "[red]note" in text


def test_the_bar_of_rounds_begins_where_a_resumed_run_goes_on():
    live, out = display(terminal=True, first_round=12)
    with live:
        pass
    assert "12/40" in without_colours(out.getvalue())


def test_the_bar_of_rounds_does_not_go_back_for_a_slower_node():
    live, out = display(terminal=True)
    with live:
        live.round_done("small", metrics(8))
        live.round_done("large", metrics(7))
    assert re.findall(r"(\d+)/40 \d", without_colours(out.getvalue()))[-1] == "9"


@pytest.mark.parametrize("terminal", [False, True])
def test_hostile_text_is_shown_as_text_wherever_it_stands(terminal):
    clock = Clock()
    live, out = display(terminal, clock)
    with live:
        live.phase(HOSTILE, HOSTILE, 0, 1, HOSTILE)
        clock.now_s += 11
        live.phase(HOSTILE, HOSTILE, 1, 1, HOSTILE)
        live.round_done(HOSTILE, metrics(0, missing=[HOSTILE]))
        live.evaluated(HOSTILE, {"round": 1, "validation": 0.5})
        live.say(HOSTILE)
    text = out.getvalue()
    assert "[31m[red]boo[/red]⏎<script>" in text
    assert "\x1b[31m[red]" not in text
    assert not {"\x9b", "\u202e", "\u200b"} & set(text)
    if not terminal:
        assert not set(STEERS) & set(text)


def test_the_bars_are_gone_after_a_run_that_failed():
    live, out = display(terminal=True)
    with pytest.raises(RuntimeError), live:
        raise RuntimeError("boom")
    # The cursor is back, and what was drawn last is an erased line.
    assert "\x1b[?25h" in out.getvalue()
    assert out.getvalue().endswith("\x1b[2K")
