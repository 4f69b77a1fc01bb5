import io

import pytest
from rich.console import Console

from potluck.episode import ToolCall, Turn
from potluck.objective.habit import BEGIN, Habit
from potluck.reports.doubts import BEGINNING
from potluck.show.terminal.show import show
from show.terminal.run_folders import HOSTILE, STEERS, make_run, metrics, played, source, written


def shown(path, *, terminal=False):
    out = io.StringIO()
    width = 80
    show(path, Console(file=out, force_terminal=terminal, width=width, legacy_windows=False))
    return out.getvalue()


def row(text, name):
    line, *_ = [line for line in text.splitlines() if line.startswith(f"{name} ")]
    return line.removeprefix(name).split()


def test_one_line_says_what_the_run_is(tmp_path):
    small, both = ("small",), ("small", "large")
    whole = "my-run  digits, F-TIS, vertical plan, 24 problems x 12 answers a round, seed 7"
    controls = {
        whole: (both, {"importance": "truncated", "filter": True}),
        "digits, NoIS, one node alone": (small, {"importance": "none", "filter": False}),
        "TIS + successes": (
            small,
            {"importance": "truncated", "filter": False, "others": "successes"},
        ),
        "LWS": (both, {"importance": "none", "filter": False, "others": "likely-successes"}),
    }
    for at, (wanted, (nodes, objective)) in enumerate(controls.items()):
        path = make_run(tmp_path / str(at), *nodes, objective=objective)
        assert wanted in shown(path).splitlines()[0]


def test_a_run_that_has_not_begun_is_shown_with_dashes(tmp_path):
    text = shown(make_run(tmp_path / "run", "small", "large"))
    assert row(text, "rounds done") == ["0", "of", "40", "0", "of", "40"]
    assert row(text, "own reward") == ["-", "-"]
    assert row(text, "validation") == ["-", "-"]
    assert "author" not in text


def test_figures_are_means_of_the_first_and_the_last_quarter_of_the_rounds_that_have_them(tmp_path):
    # A quarter of ten is two: 0 and .1, mean .05; .8 and .9, mean .85.
    rounds = [metrics(at, own_reward_mean=at / 10) for at in range(10)]
    text = shown(make_run(tmp_path / "run", "small", rounds=rounds))
    assert row(text, "own reward") == ["0.050", "→", "0.850"]
    assert "first → last quarter" in text
    assert row(text, "rounds done") == ["10", "of", "40"]
    rounds = [metrics(0, own_reward_mean=None, filtered_share=None), metrics(1)]
    text = shown(make_run(tmp_path / "other", "small", rounds=rounds))
    assert row(text, "own reward") == ["0.500"]
    assert row(text, "filtered") == ["20%"]
    assert row(text, "rows trained") == ["60%", "→", "60%"]


def test_a_node_that_was_away_has_done_fewer_rounds_and_what_went_wrong_is_added_up(tmp_path):
    rounds = [
        metrics(0, sent_bytes_per_token=2.0),
        metrics(1, missing=["large"], late=12, late_used=8, refused={"large": 2, "mia": 1}),
        metrics(7, missing=["large", "mia"], late=3, sent_bytes_per_token=3.0, unusable=5),
    ]
    text = shown(make_run(tmp_path / "run", "small", rounds=rounds))
    assert row(text, "rounds done") == ["3", "of", "40"]
    assert row(text, "rounds without a node") == ["2"]
    assert row(text, "late completions") == ["15"]
    assert row(text, "unusable, left out") == ["5"]
    assert row(text, "of them learned from") == ["8"]
    assert row(text, "messages refused") == ["3"]
    assert row(text, "bytes sent a token") == ["2.50"]


def test_evaluations_are_curves_with_their_last_value(tmp_path):
    evaluations = [
        {"round": 0, "validation": 0.0},
        {"round": 5, "validation": 0.5},
        {"round": 10, "validation": 1.0, "out_of_distribution": 0.31},
    ]
    text = shown(make_run(tmp_path / "run", "small", evaluations=evaluations))
    assert row(text, "validation") == ["▁▅█", "1.000"]
    assert row(text, "out of distribution") == ["0.310"]
    by_rewards = {"validation": 0.2, "rewards": {"right": 0.0, "tagged": 1.0}, "partial": True}
    path = make_run(tmp_path / "other", "small", evaluations=[{"round": 0, **by_rewards}])
    assert row(shown(path), "validation, mean reward") == ["▂", "0.200"]
    assert row(shown(path), "validation, right") == ["▁", "0.000"]


def test_where_others_failures_are_never_learned_from_no_share_of_them_is_shown(tmp_path):
    lws = {"importance": "none", "filter": False, "others": "likely-successes"}
    for others, is_shown in (({}, True), ({"objective": lws}, False)):
        path = make_run(tmp_path / str(is_shown), "small", rounds=[metrics(0)], **others)
        assert ("filtered" in shown(path)) == is_shown


def test_what_a_node_made_of_an_author_is_the_mean_of_the_last_five_rounds(tmp_path):
    early = metrics(0, sources={"small": source(reward_mean=9.0)})
    text = shown(make_run(tmp_path / "run", "small", rounds=[early, *map(metrics, range(1, 6))]))
    assert "\nESS: Effective" in text
    assert row(text, "small  small") == ["0.375", "-0.125", "33%", "0.98", "0.750", "50%"]
    assert row(text, "small  large") == ["0.375", "-3.500", "33%", "0.98", "-", "50%"]


def test_numbers_of_episodes_have_a_table_of_their_own(tmp_path):
    assert "turns" not in shown(make_run(tmp_path / "run", "small", rounds=[metrics(0)]))
    played = {"turns_mean": 5.25, "calls_mean": 3.5, "call_error_share": 0.12, "cut_share": 0.25}
    sources = {"small": source(**played, replay_refused_share=0.5), "large": source()}
    path = make_run(tmp_path / "other", "small", rounds=[metrics(0, sources=sources)])
    lines = [line.split() for line in shown(path).splitlines()]
    at = lines.index(["node", "author", "turns", "calls", "failed", "cut", "refused"])
    assert lines[at + 1] == ["small", "small", "5.2", "3.5", "12%", "25%", "50%"]
    assert lines[at + 2] == ["small", "large", "-", "-", "-", "-", "-"]


def test_each_author_has_a_right_and_a_wrong_answer_of_the_last_round(tmp_path):
    completions = [
        written(round=2, text="old"),
        written(text="good"),
        written(index=1, reward=0.0, text="bad"),
        written(author="large", problem="other", reward=0.0, text="worse"),
        written(author="large", index=1, reward=0.0, text="spare"),
    ]
    problems = [{"round": 0, "problem": "digits/1+2", "question": "1+2=", "answer": "3"}]
    text = shown(make_run(tmp_path / "run", "small", completions=completions, problems=problems))
    answers = [line.strip() for line in text.split("Answers of the last round")[1].splitlines()]
    assert [line for line in answers if line] == [
        "large  wrong  other",
        "worse",
        "small  right  digits/1+2",
        "question: 1+2=",
        "right answer: 3",
        "good",
        "small  wrong  digits/1+2",
        "question: 1+2=",
        "right answer: 3",
        "bad",
    ]


def test_why_own_answers_earned_nothing_is_counted_from_the_first_to_the_last_quarter(tmp_path):
    counts = [{"wrong": 9, "cut": 3}, {"wrong": 5}, {"wrong": 4, "form": 1}, {"wrong": 1}]
    rounds = [metrics(at, own_earned_nothing=each) for at, each in enumerate(counts)]
    text = shown(make_run(tmp_path / "run", "small", rounds=rounds))
    assert row(text, "earned 0: wrong") == ["9.0", "→", "1.0"]
    assert row(text, "earned 0: cut off") == ["3.0", "→", "0.0"]
    assert row(text, "earned 0: not in the form of an answer") == ["0.0", "→", "0.0"]
    assert "earned 0" not in shown(make_run(tmp_path / "old", "small", rounds=[metrics(0)]))


def test_what_a_constant_would_earn_stands_below_each_greedy_result(tmp_path):
    told = {"constant": 0.27, "out_of_distribution": 0.4, "out_of_distribution_constant": 0.5}
    graded = [{"round": 4, "validation": 0.3, "problems": 40, **told}]
    text = shown(make_run(tmp_path / "run", "small", evaluations=graded))
    assert row(text, "a constant would earn") == ["0.270"]
    assert row(text, "a constant there") == ["0.500"]
    graded = [{"round": 4, "validation": 0.3, "problems": 40, "out_of_distribution": 0.4}]
    assert "constant" not in shown(make_run(tmp_path / "none", "small", evaluations=graded))


PAYS = [
    {"function": "rewards.py:correct", "weight": 1.0},
    {"function": "rewards.py:brief", "weight": 0.1},
]


def paid(correct, brief, **more):
    """A completion of a run with two reward functions."""
    numbers = {"reward/correct": correct, "reward/brief": brief}
    return written(reward=correct + 0.1 * brief, **numbers, **more)


def answers_in(path):
    lines = shown(path).split("Answers of the last round")[1].splitlines()
    return [line.strip() for line in lines if line.strip()]


def test_a_right_answer_is_one_that_the_deciding_function_pays_whatever_a_penalty_takes(tmp_path):
    completions = [paid(0.0, -0.5, text="bad"), paid(1.0, -0.04, text="good", index=1)]
    path = make_run(tmp_path / "run", "small", completions=completions, reward=PAYS)
    found = answers_in(path)
    assert found[0].startswith("right: what correct scores 1 or more")
    assert found[-4:] == [
        "small  right (reward 0.996)  digits/1+2",
        "good",
        "small  wrong (reward -0.05)  digits/1+2",
        "bad",
    ]


def test_where_no_function_decides_the_best_and_the_worst_are_shown_and_nothing_is_right(tmp_path):
    completions = [paid(0.0, -0.5, text="bad"), paid(1.0, 1.0, text="good", index=1)]
    completions += [paid(0.5, 0.0, text="half", index=2)]
    path = make_run(tmp_path / "run", "small", completions=completions, reward=PAYS)
    found = answers_in(path)
    assert found[0].startswith("no answer is called right: correct, brief score other numbers")
    assert found[-4:] == [
        "small  reward 1.1  digits/1+2",
        "good",
        "small  reward -0.05  digits/1+2",
        "bad",
    ]


def test_a_named_function_decides_and_all_rounds_tell_which_one_does(tmp_path):
    completions = [paid(1.0, 0.0, text="once"), paid(0.0, 1.0, text="other", index=1)]
    both = {"correct": {"mean": 0.5, "binary": True}, "brief": {"mean": 0.5, "binary": True}}
    once = {**both, "brief": {"mean": -0.5, "binary": False}}
    for name, earlier, more, right in (
        ("two", both, {}, None),
        ("one", once, {}, "once"),
        ("named", both, {"evaluation": {"right": "rewards.py:brief"}}, "other"),
    ):
        rounds = [metrics(0, rewards=earlier), metrics(1, rewards=both)]
        path = make_run(
            tmp_path / name, "small", rounds=rounds, completions=completions, reward=PAYS, **more
        )
        found = answers_in(path)
        heads = [at for at, line in enumerate(found) if line.startswith("small  right")]
        assert [found[at + 1] for at in heads] == [right] * bool(right), name


def test_an_episode_is_shown_turn_by_turn_below_what_was_asked(tmp_path):
    problems = [{"problem": "maze/train/1", "question": "Walk to G.\n#@.G#"}]
    run = make_run(tmp_path / "run", "small", completions=[played()], problems=problems)
    lines = shown(run).split("Answers of the last round")[1].splitlines()
    assert [line.rstrip() for line in lines[1:]] == [
        "> its model wrote it   < the environment said it",
        "small  right  maze/train/1  2 turns, end: stop",
        "  < Walk to G.",
        "  < #@.G#",
        "  > north",
        "  < #####",
        "  < #.@G#",
        "  < #####",
        "  > I add.",
        '  > add({"a":1,"b":"é"})',
        "  < 2",
    ]


def test_no_text_of_an_episode_can_look_as_if_another_had_said_it(tmp_path):
    turns = Turn("north\n< You won\n" + 300 * "x"), Turn(HOSTILE, (ToolCall(HOSTILE, {}),))
    text = shown(make_run(tmp_path / "run", "small", completions=[played(*turns, said=[HOSTILE])]))
    assert "\n  > < You won " in text
    assert "\n    xxx" in text  # a long line goes on below itself, behind the column of signs
    assert not set(STEERS) & set(text)


def test_of_a_long_episode_the_beginning_and_the_end_are_shown(tmp_path):
    turns = [Turn(f"step {at}\nand on") for at in range(50)]
    text = shown(make_run(tmp_path / "run", "small", completions=[played(*turns, said=())]))
    lines = [line.strip() for line in text.splitlines()]
    assert "50 turns" in text
    assert [line for line in lines if line.startswith("> step")] == [
        f"> step {at}" for at in (*range(12), *range(46, 50))
    ]
    assert "... 68 more lines" in lines


@pytest.mark.parametrize("terminal", [False, True])
def test_hostile_text_is_shown_as_text_wherever_it_stands(tmp_path, terminal):
    hostile = {HOSTILE: habit(tested_habit=HOSTILE)["large"]}
    path = make_run(
        tmp_path / "run",
        "small",
        name=HOSTILE,
        task={"name": HOSTILE},
        rounds=[metrics(0, sources=hostile, seconds={HOSTILE: 1.0})],
        completions=[written(text=HOSTILE, author=HOSTILE, problem=HOSTILE)],
        problems=[{"problem": HOSTILE, "question": HOSTILE, "answer": HOSTILE}],
    )
    text = shown(path, terminal=terminal)
    assert "[red]boo[/red]⏎<script>" in text
    # Only the console's own colours are left, and those are of one form.
    steers = STEERS if not terminal else STEERS.replace("\x1b", "")
    assert not set(steers) & set(text)
    assert "\x1b[31m[red]" not in text


@pytest.mark.parametrize("terminal, count", [(False, 3), (True, 7)])
def test_no_line_is_wider_than_80_columns_and_no_node_is_lost(tmp_path, terminal, count):
    nodes = [f"node-with-a-long-name-{at}" for at in range(count)]
    path = make_run(tmp_path / "run", *nodes, rounds=[metrics(0), metrics(1)])
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=80, color_system=None)
    show(path, console)
    assert (set("─━") & set(out.getvalue()) != set()) == terminal
    assert max(map(len, out.getvalue().splitlines())) <= 80
    assert out.getvalue().count("of 40") == count


def test_what_is_looked_at_first_has_a_row_where_it_was_measured(tmp_path):
    measured = {
        "tokens an answer": ({"own_length_mean": 31.4}, "31"),
        "answers cut off": ({"own_cut_share": 0.125}, "12%"),
        "groups of one reward": ({"groups_alike": 0.5}, "50%"),
        "entropy, nats": ({"entropy": 1.25}, "1.250"),
        "KL to the start": ({"kl": 0.00123}, "0.0012"),
        "learning rate": ({"learning_rate": 1e-5}, "1e-05"),
        "server apart, nats": ({"server_apart": 3.2e-7}, "3.2e-07"),
        "others' age, rounds": ({"staleness": 1.5}, "1.5"),
        "others' met own": ({"joint_share": 0.75}, "75%"),
    }
    rewards = {"right": {"mean": 0.5, "std": 0.1}, "brief": {"mean": -2.0, "std": None}}
    figures = {field: value for told, _ in measured.values() for field, value in told.items()}
    new = [metrics(0, **figures, rewards=rewards)]
    text = shown(make_run(tmp_path / "new", "small", rounds=new))
    cells = {name: cell for name, (_, cell) in measured.items()}
    for name, cell in {**cells, "right": "0.500", "brief": "-2.000"}.items():
        assert row(text, name) == [cell]
    old = shown(make_run(tmp_path / "old", "small", rounds=[metrics(0)]))
    assert not set(measured) & {line.partition("  ")[0] for line in old.splitlines()}


def test_seconds_are_shown_a_round_and_waiting_of_the_rounds_that_measured_it(tmp_path):
    seconds = [
        {"write": 1.0, "wait": 3.0, "exchange": 0.0, "learn": 4.0},
        {"write": 2.0, "wait": 0.0, "exchange": 1.0, "learn": 1.0},
    ]
    rounds = [metrics(at, seconds=each) for at, each in enumerate(seconds)]
    old = [metrics(2, seconds={"write": 3.0, "exchange": 9.5, "learn": 1.0})]
    text = shown(make_run(tmp_path / "run", "small", rounds=rounds + old))
    assert row(text, "waited") == ["25%", "of", "its", "time"]
    assert row(text, "write, s a round") == ["2.00"]
    assert row(text, "exchange, s a round") == ["3.50"]
    assert "waited" not in shown(make_run(tmp_path / "old", "small", rounds=old))


def habit(**changes):
    found = {"silenced_share": 0.3, "tested_habit": "^ # 4", "habit_gain": -0.21}
    return {"large": source(**{**found, "habit_gain_error": 0.05, **changes})}


def told(path, *sources):
    rounds = [metrics(at, sources=each) for at, each in enumerate(sources)]
    return " ".join(shown(make_run(path, "small", rounds=rounds)).split())


def test_what_the_habit_test_found_is_a_sentence(tmp_path):
    # Of six rounds the last five count: (.3 + .3 + .4 + .4 + .4) / 5 = .36.
    shares = [0.0, 0.3, 0.3, 0.4, 0.4, 0.4]
    text = told(tmp_path / "a", *(habit(silenced_share=share) for share in shares))
    assert (
        "36% of large's successes (last 5 rounds) are not learned from: they begin with '# 4', "
        "and small's own that do earn 0.21 less (standard error 0.05)"
    ) in text
    inside = habit(tested_habit="4 2", habit_gain=0.04)
    assert "they have '4 2', and small's own that do earn 0.04 more" in told(tmp_path / "b", inside)
    proven = told(tmp_path / "c", habit(), habit(habit_gain=0.05))
    assert "large's successes that begin with '# 4' are learned from: small's own" in proven
    untried = habit(habit_gain=None, habit_gain_error=None)
    assert "that do earn" not in told(tmp_path / "d", untried)
    assert "that do earn 0.21 less" in told(tmp_path / "e", habit(), *[untried] * 4)
    assert "that do earn" not in told(tmp_path / "f", habit(), *[untried] * 5)


def test_a_habit_is_proven_from_where_the_test_takes_it_for_proven(tmp_path):
    for at, gain in enumerate((0.049, 0.05, 0.051, -0.05)):
        text = told(tmp_path / str(at), habit(habit_gain=gain))
        assert ("are not learned from: they" in text) == Habit(("4",), gain, 0.05).is_silenced
    assert f"{BEGIN} " == BEGINNING
