import io
import re

import pytest
from rich.console import Console

from potluck.reports import EvaluationReport, RoundReport
from potluck.reports.events import Evaluated, Notice, PhaseProgress, RoundDone
from potluck.show.terminal.live import LiveDisplay
from show.terminal.run_folders import HOSTILE, STEERS, report, source


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
        live.show(RoundDone("small", report(4)))
    assert out.getvalue() == (
        "round  5/40  small     reward 0.250  own 0.500  filtered  20%  "
        "ln ratio: large -3.500  1.8 s\n"
    )


def test_the_ratio_of_each_other_author_that_has_one_is_in_the_line():
    live, out = display()
    sources = {
        "east": source(log_ratio_mean=None),
        "large": source(log_ratio_mean=0.25),
        "small": source(),
        HOSTILE: source(),
    }
    with live:
        live.show(RoundDone("small", report(0, sources=sources)))
        live.show(RoundDone("small", report(1, sources={"small": source()})))
    first, second = out.getvalue().splitlines()
    assert "  ln ratio: large 0.250, [31m[red]boo" in first
    assert not set(STEERS) & set(first)
    assert "ln ratio" not in second


def test_what_went_wrong_in_a_round_stands_in_its_line():
    live, out = display()
    with live:
        live.show(RoundDone("small", report(0, missing=["large"], late=3, dropped_nonfinite=2)))
    assert out.getvalue().endswith("  missing: large  late: 3, 0 used  not finite: 2\n")


TROUBLES = {
    "late": ({"late": 3, "late_used": 2}, "late: 3, 2 used"),
    "late, and of no use": ({"late": 3, "late_used": 0}, "late: 3, 0 used"),
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
        live.show(RoundDone("small", report(0, **told)))
        live.show(RoundDone("small", report(0, **nothing)))
    first, second = out.getvalue().splitlines()
    assert first.endswith(f"1.8 s  {shown}")
    assert second.endswith("1.8 s")


def test_many_strangers_do_not_fill_the_screen():
    live, out = display()
    with live:
        refused = {f"stranger-{at}": at for at in range(1, 100)}
        live.show(RoundDone("small", report(0, refused=refused, quarantined=list(refused))))
    assert len(out.getvalue()) < 300


def test_a_round_without_a_step_says_so():
    live, out = display()
    with live:
        live.show(RoundDone("small", report(0, updates=0)))
    assert out.getvalue().endswith("  no step: no completion was better than its group\n")


def test_statistics_that_do_not_exist_are_dashes():
    live, out = display()
    with live:
        live.show(RoundDone("small", RoundReport(0, updates=1)))
    assert out.getvalue() == "round  1/40  small     reward -  own -  filtered    -  0.0 s\n"


def test_an_evaluation_is_one_line():
    live, out = display()
    with live:
        first = EvaluationReport(5, validation=0.52, problems=200)
        last = EvaluationReport(
            40, 0.6, 200, out_of_distribution=0.31, out_of_distribution_problems=50
        )
        live.show(Evaluated("small", first))
        live.show(Evaluated("small", last))
    assert out.getvalue() == (
        "round  5/40  small     validation 0.520 of 200\n"
        "round 40/40  small     validation 0.600 of 200  out of distribution 0.310 of 50\n"
    )


def test_without_a_terminal_phases_speak_at_most_every_ten_seconds():
    clock = Clock()
    live, out = display(clock=clock)
    with live:
        for at in range(201):
            live.show(PhaseProgress("small", "write", at, 201))
            clock.now_s += 0.125
    # 25 seconds: a line after 10 and one after 20.
    assert [line.split()[2] for line in out.getvalue().splitlines()] == ["80/201", "160/201"]
    assert out.getvalue().startswith("small write 80/201\n")


def test_without_a_terminal_all_nodes_share_a_line_every_ten_seconds():
    clock = Clock()
    live, out = display(clock=clock)
    with live:
        live.show(PhaseProgress("small", "write", 0, 9))
        clock.now_s += 5
        live.show(PhaseProgress("large", "write", 0, 9))
        clock.now_s += 5
        live.show(PhaseProgress("small", "write", 1, 9))
        live.show(PhaseProgress("large", "write", 1, 9))
        clock.now_s += 5
        live.show(PhaseProgress("small", "write", 2, 9))
        live.show(PhaseProgress("large", "write", 2, 9))
        clock.now_s += 5
        live.show(PhaseProgress("small", "learn", 3, 9))
    assert out.getvalue() == "small write 1/9  large write 0/9\nsmall learn 3/9  large write 2/9\n"


def test_waiting_counts_nodes_and_says_so():
    clock = Clock()
    live, out = display(clock=clock)
    with live:
        live.show(PhaseProgress("small", "wait", 0, 3))
        clock.now_s += 10
        live.show(PhaseProgress("small", "wait", 2, 3))
    assert out.getvalue() == "small wait 2/3 nodes here\n"


def test_without_a_terminal_short_phases_say_nothing():
    live, out = display()
    with live:
        for name in ("write", "learn", "evaluate"):
            live.show(PhaseProgress("small", name, 1, 1))
    assert out.getvalue() == ""


def test_without_a_terminal_nothing_is_coloured_and_nothing_is_folded():
    live, out = display()
    with live:
        live.show(RoundDone("a-node-with-a-name-of-32-letters", report(0, missing=["large"] * 9)))
        live.show(Notice("x" * 500))
    assert len(out.getvalue().splitlines()) == 2
    assert "\x1b" not in out.getvalue()


def test_in_a_terminal_there_are_bars_for_the_rounds_and_for_the_phase():
    live, out = display(terminal=True, first_round=3)
    with live:
        live.show(PhaseProgress("small", "wait", 7, 9))
        live.show(RoundDone("small", report(3)))
    text = without_colours(out.getvalue())
    assert "rounds" in text
    assert "━" in text
    assert re.search(r" 4/40", text)
    assert re.search(r"small wait .* 7/9 .*nodes here", text)
    assert "round  4/40  small     reward 0.250" in text


def last_bars(live):
    console = Console(file=io.StringIO(), width=live._console.width)
    console.print(live._progress.get_renderable())
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_in_a_terminal_each_node_has_a_bar_of_its_own():
    live, _ = display(terminal=True)
    with live:
        live.show(PhaseProgress("a", "write", 1, 9))
        live.show(PhaseProgress("longer", "learn", 2, 9))
        live.show(PhaseProgress("a", "wait", 1, 2))
        rounds, first, second = last_bars(live)
    assert rounds.startswith("rounds")
    assert re.fullmatch(r"a      wait +━+ +1/2 .* nodes here", first)
    assert re.fullmatch(r"longer learn +━+ +2/9 .*", second)


def test_a_bar_begins_anew_with_each_phase():
    live, _ = display(terminal=True)
    with live:
        live.show(PhaseProgress("a", "write", 9, 9))
        finished = live._progress.tasks[1].finished
        live.show(PhaseProgress("a", "learn", 0, 9))
        assert (finished, live._progress.tasks[1].finished) == (True, False)


@pytest.mark.parametrize("width", [60, 80])
def test_bars_of_four_nodes_fit_a_narrow_terminal(width):
    live, _ = display(terminal=True, width=width)
    with live:
        for name in ("north", "south", "east", "a-node-with-a-long-name"):
            live.show(PhaseProgress(name, "evaluate", 100, 200))
        lines = last_bars(live)
    assert len(lines) == 5
    assert all("…" not in line for line in lines)
    assert all(re.search(r"100/200 +0:00:0", line) for line in lines[1:]), lines


def test_markup_in_the_bars_is_text():
    live, out = display(terminal=True)
    with live:
        live.show(PhaseProgress("[red]node", "[b]write", 0, 1))
    text = without_colours(out.getvalue())
    assert "[red]node [b]write" in text


def test_the_bar_of_rounds_begins_where_a_resumed_run_goes_on():
    live, out = display(terminal=True, first_round=12)
    with live:
        pass
    assert "12/40" in without_colours(out.getvalue())


def test_the_bar_of_rounds_does_not_go_back_for_a_slower_node():
    live, out = display(terminal=True)
    with live:
        live.show(RoundDone("small", report(8)))
        live.show(RoundDone("large", report(7)))
    assert re.findall(r"(\d+)/40 \d", without_colours(out.getvalue()))[-1] == "9"


@pytest.mark.parametrize("terminal", [False, True])
def test_hostile_text_is_shown_as_text_wherever_it_stands(terminal):
    clock = Clock()
    live, out = display(terminal, clock)
    with live:
        live.show(PhaseProgress(HOSTILE, HOSTILE, 0, 1))
        clock.now_s += 11
        live.show(PhaseProgress(HOSTILE, HOSTILE, 1, 1))
        live.show(RoundDone(HOSTILE, report(0, missing=[HOSTILE])))
        live.show(Evaluated(HOSTILE, EvaluationReport(1, validation=0.5)))
        live.show(Notice(HOSTILE))
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


def test_what_is_looked_at_first_stands_in_the_line():
    told = {"own_length_mean": 31.4, "own_cut_share": 0.125, "kl": 0.00123, "learning_rate": 1e-5}
    told |= {"server_apart": 3.2e-7, "staleness": 1.5}
    rewards = {"right": {"mean": 0.5, "std": 0.25}, HOSTILE: {"mean": -1.0, "std": None}}
    live, out = display()
    with live:
        live.show(RoundDone("small", report(0, **told, rewards=rewards)))
        live.show(RoundDone("small", report(1, own_length_mean=8.0, own_cut_share=0.0)))
        live.show(RoundDone("small", report(2, rewards={"task": {"mean": 0.5}})))
    first, second, third = out.getvalue().splitlines()
    assert "  right 0.500 ± 0.250  " in first
    looked_at = "-1.000 ± -  length 31  (12% cut off)  KL 0.0012  rate 1e-05"
    assert f"{looked_at}  others 1.5 rounds old  server 3e-07 apart  " in first
    assert not set(STEERS) & set(first)
    assert "  length 8  " in second
    assert not re.search("cut|KL|apart|rounds old|rate", second)
    assert "±" not in third  # the own reward is that already


def test_each_node_has_a_bar_of_where_its_time_went_and_the_blocks_are_explained():
    live, out = display(terminal=True)
    spent = {"write": 1.0, "learn": 1.0, "wait": 1.0, "exchange": 1.0}
    with live:
        live.show(PhaseProgress("small", "write", 1, 2))
        live._progress.refresh()
        assert "time:" not in out.getvalue()
        for round, seconds in enumerate([spent, {**spent, "wait": 5.0}]):
            live.show(RoundDone("small", report(round, seconds=seconds)))
        live._progress.refresh()
    text = without_colours(out.getvalue())
    assert "██▓▓░░░░░░▒▒" in text  # of both rounds: 2, 2, 6 and 2 s
    assert "time:  █ write  ▓ learn  ░ wait  ▒ exchange" in text
    assert "4.0 s (25% waiting)" in text


def test_a_terminal_of_few_columns_has_no_bar_of_time():
    live, out = display(terminal=True, width=60)
    with live:
        live.show(PhaseProgress("small", "write", 1, 2))
        live.show(RoundDone("small", report(0, seconds={"write": 1.0, "wait": 1.0})))
        live._progress.refresh()
    assert "░" not in out.getvalue()
    assert "time:" not in out.getvalue()


def test_waiting_is_told_where_it_was_measured_and_is_a_hundredth_or_more():
    live, out = display()
    for round, wait_s in enumerate((0.0, 0.009, 1.0)):
        live.show(RoundDone("small", report(round, seconds={"write": 1.0, "wait": wait_s})))
    live.show(RoundDone("small", report(3, seconds={"write": 1.0, "exchange": 1.0})))
    lines = out.getvalue().splitlines()
    assert ["waiting" in line for line in lines] == [False, False, True, False]
    assert lines[2].endswith("  2.0 s (50% waiting)")
