import io
import re
from types import SimpleNamespace

import pytest
from rich.console import Console

from potluck.reports import AuthorReport, EvaluationReport
from potluck.reports.events import Evaluated, Notice, PeerNews, PhaseProgress, RoundDone
from potluck.show.terminal import live as module
from potluck.show.terminal.live import LiveDisplay
from show.terminal.run_folders import HOSTILE, STEERS, report


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    clock = SimpleNamespace(now_s=100.0, monotonic=lambda: clock.now_s)
    monkeypatch.setattr(module, "time", clock)
    return clock


def display(terminal=False, width=80, **changes):
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=width, legacy_windows=False)
    return LiveDisplay(console, **{"rounds": 40, **changes}), out


def without_colours(text):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def lines_of(*events, **changes):
    """What the display writes of these events, between which a number of seconds may pass."""
    shown, out = display(**changes)
    with shown:
        for event in events:
            if isinstance(event, int | float):
                module.time.now_s += event
            else:
                shown.show(event)
    return out.getvalue().splitlines()


def done(round=0, **changes):
    return RoundDone("small", report(round, **changes))


def phase(node, name, at, total=9):
    return PhaseProgress(node, name, at, total)


ROUNDS = {
    "own 0.500  1.8 s": {},
    "own 0.500  1.8 s  missing: large  late: 3, 0 used  not finite: 2": {
        "missing": ["large"], "late": 3, "dropped_nonfinite": 2,
    },
    "1.8 s  late: 3, 2 used": {"late": 3, "late_used": 2},
    "1.8 s  alone in their group: 4": {"too_few": 4},
    "1.8 s  beyond strangers' share: 5": {"over_share": 5},
    "1.8 s  refused: mallory 2, eve 1": {"refused": {"mallory": 2, "eve": 1}},
    "1.8 s  quarantined: eve, mallory": {"quarantined": ["eve", "mallory"]},
    "1.8 s  unasked: 1": {"unasked": 1},
    "1.8 s  no step: no completion was better than its group": {"updates": 0, "sources": {}},
    "1.8 s  no step: 4 completions differ in reward from their group, and none of them is of a "
    "trusted author and passed the filter": {
        "updates": 0, "sources": {"large": AuthorReport(completions=6, with_advantage=4)},
    },
    "own 0.500  1.8 s ": {  # the own reward is that of the task already
        "own_length_mean": 8.4, "kl": 0.00123, "rewards": {"task": {"mean": 0.5}},
    },
    "own 0.500  right 0.500  brief -1.000  1.8 s": {
        "rewards": {"right": {"mean": 0.5, "std": 0.25}, "brief": {"mean": -1.0, "std": None}},
    },
    "1.8 s": {"late": 0, "refused": {}, "quarantined": [], "unasked": 0},
}  # fmt: skip


def test_without_a_terminal_a_round_is_one_plain_line_with_all_that_went_wrong():
    for end, changes in ROUNDS.items():
        (line,) = lines_of(done(4, **changes))
        assert line.startswith("round  5/40  small     reward 0.250  own 0.500  ")
        assert line.endswith(end.rstrip()), changes


def test_what_is_left_out_of_an_author_is_told_with_its_reasons():
    left_out = {"large": {"no text": 3, "too long": 1}, HOSTILE: {"no text": 1}}
    (line,) = lines_of(done(unreadable=left_out))
    assert "  left out of large: 4 of 54, no text, too long  left out of [31m[red]b" in line
    assert not set(STEERS) & set(line)


def test_many_strangers_do_not_fill_the_screen():
    refused = {f"stranger-{at}": at for at in range(1, 100)}
    unreadable = {name: {"no text": 1} for name in refused}
    events = done(refused=refused, quarantined=list(refused), unreadable=unreadable)
    assert len(*lines_of(events)) < 500


def test_an_evaluation_is_one_line():
    last = EvaluationReport(40, 0.6, 200, out_of_distribution=0.31, out_of_distribution_problems=50)
    first = EvaluationReport(5, validation=0.52, problems=200)
    partial = EvaluationReport(5, 0.2, 41, rewards={"right": 0.0, "tagged": 1.0}, partial=True)
    easy = EvaluationReport(5, 0.3, 40, constant=0.275)
    assert lines_of(*(Evaluated("small", each) for each in (first, last, partial, easy))) == [
        "round  5/40  small     validation 0.520 of 200",
        "round 40/40  small     validation 0.600 of 200  out of distribution 0.310 of 50",
        "round  5/40  small     validation, mean reward 0.200 of 41 problems  right 0.000  "
        "tagged 1.000",
        "round  5/40  small     validation 0.300 of 40  a constant earns 0.275",
    ]


def test_without_a_terminal_phases_speak_at_most_once_a_minute_with_the_time_that_is_left():
    events = [each for at in range(201) for each in (phase("small", "write", at, 201), 0.75)]
    # 150 seconds: a line after 60 and one after 120.
    assert lines_of(*events) == ["60 s  small write 80/201", "2 min  small write 160/201"]
    short = (phase("small", name, 1, 1) for name in ("write", "learn", "evaluate"))
    assert lines_of(*short) == []
    waiting = 60, phase("small", "wait", 0, 3), phase("large", "write", 1), 60
    told = lines_of(*waiting, phase("small", "wait", 2, 3), 5, phase("large", "write", 2))
    assert told == [
        "60 s  small wait 0/3 nodes here",
        "2 min  small wait 2/3 nodes here  large write 1/9",
    ]
    rounds = [each for at in range(3) for each in (30, done(at))]
    told = lines_of(*rounds, phase("small", "write", 0))
    assert told[-1] == "2 min, about 18 min left  small write 0/9"


def test_in_a_terminal_the_bar_of_rounds_says_how_much_time_is_left_until_there_is_none(clock):
    live, _ = display(terminal=True, rounds=4)
    said = []
    with live:
        for at in range(4):
            for name in ("small", "large"):  # the first node that is done ends the round
                live.show(RoundDone(name, report(at)))
                clock.now_s += 30
            said.append(last_bars(live)[0].partition("0:00:00")[2].strip())
    assert said == ["", "2 min left", "60 s left", ""]


def test_without_a_terminal_nothing_is_coloured_and_nothing_is_folded():
    long = RoundDone("a-node-with-a-name-of-32-letters", report(0, missing=["large"] * 9))
    lines = lines_of(long, Notice("x" * 500), PeerNews("left", "west"))
    assert len(lines) == 3
    assert "\x1b" not in "".join(lines)
    assert lines[-1] == "'west' left"


def last_bars(live):
    console = Console(file=io.StringIO(), width=live._console.width)
    console.print(live._progress.get_renderable())
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_in_a_terminal_the_rounds_and_each_node_have_a_bar():
    live, out = display(terminal=True)
    with live:
        live.show(phase("a", "write", 9))
        assert live._progress.tasks[1].finished
        live.show(phase("longer", "[b]learn", 2))  # markup is text
        live.show(phase("a", "wait", 1, 2))
        assert not live._progress.tasks[1].finished
        live.show(RoundDone("a", report(3)))
        rounds, first, second = last_bars(live)
    assert "round  4/40  a         reward 0.250" in without_colours(out.getvalue())
    assert re.match("rounds .*━.* 4/40 ", rounds)
    assert re.fullmatch(r"a      wait +━+ +1/2 .* nodes here", first)
    assert re.fullmatch(r"longer \[b\]learn +━+ +2/9 .*", second)


def test_bars_of_four_nodes_fit_a_narrow_terminal():
    live, _ = display(terminal=True, width=60)
    with live:
        for name in ("north", "south", "east", "a-node-with-a-long-name"):
            live.show(PhaseProgress(name, "evaluate", 100, 200))
        lines = last_bars(live)
    assert len(lines) == 5
    assert all("…" not in line for line in lines)
    assert all(re.search(r"100/200 +0:00:0", line) for line in lines[1:]), lines


def test_the_bar_of_rounds_begins_where_a_resumed_run_goes_on_and_never_goes_back():
    live, out = display(terminal=True, first_round=5)
    with live:
        assert "5/40" in last_bars(live)[0]
        live.show(RoundDone("small", report(8)))
        live.show(RoundDone("large", report(7)))
    assert re.findall(r"(\d+)/40 \d", without_colours(out.getvalue()))[-1] == "9"


@pytest.mark.parametrize("terminal", [False, True])
def test_hostile_text_is_shown_as_text_wherever_it_stands(terminal, clock):
    live, out = display(terminal)
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


def test_waiting_is_told_where_it_was_measured_and_is_a_hundredth_or_more():
    waits = (done(seconds={"write": 1.0, "wait": wait_s}) for wait_s in (0.0, 0.009, 1.0))
    lines = lines_of(*waits, done(seconds={"write": 1.0, "exchange": 1.0}))
    assert ["waiting" in line for line in lines] == [False, False, True, False]
    assert lines[2].endswith("  2.0 s (50% waiting)")
