"""The habit test: what it silences by plain loops, how it is remembered, and what a round does."""

import math
import random
from functools import cache

import pytest
import torch

import tiny
from node.test_learner import batch_of, learner_of, ragged_groups
from nouns import group
from potluck.node.learning.batch import pack
from potluck.node.learning.score import candidates
from potluck.objective.habit import WINDOW, GradedAnswer, HabitTest, silenced_answers
from potluck.objective.methods import METHODS, ObjectiveConfig

LWS = ObjectiveConfig(**METHODS["lws"].fields, habit_test=True)


@cache
def phrases(text):
    """All runs of one, two and three words or marks, by looking at each character."""
    words, word = ["^"], ""
    for character in text + " ":
        if character.isalpha() or character == "_":
            word += character
            continue
        words += [word] if word else []
        word = ""
        words += [character] if not character.isspace() else []
    runs = [words[a:b] for a in range(len(words)) for b in (a + 1, a + 2, a + 3) if b <= len(words)]
    return {" ".join(run) for run in runs} - {"^"}


def right_ones(answers, untrusted=()):
    counted = [a.reward for a in answers if a.author not in untrusted]
    mean = sum(counted) / len(counted)
    return [a for a in answers if a.reward > 0 and a.reward >= mean]


def share(which, has):
    return sum(has(a) for a in which) / len(which)


def expected(rounds, me, author, untrusted=()):
    """The rows of the last round that are silenced, and H: section by section of habit.py."""
    rounds = rounds[-WINDOW:]
    theirs = [a for r in rounds for a in right_ones(r, untrusted) if a.author == author]
    mine = [a for r in rounds for a in right_ones(r, untrusted) if a.author == me]
    earning = [a for r in rounds for a in r if a.author == me and a.reward > 0]
    if author in untrusted and theirs and len(mine) < 2 <= len(earning):
        return {i for i, a in enumerate(rounds[-1]) if a.author == author}, set()
    if len(theirs) < 2 or len(mine) < 2:
        return set(), set()
    beside = []  # for each of the author's successes, my answers to that problem
    for r in rounds:
        for a in right_ones(r, untrusted):
            if a.author == author:
                beside.append([b for b in r if b.author == me and b.problem == a.problem])
    habit = set()
    for x in set().union(*(phrases(a.text) for a in theirs)):
        has = lambda a, x=x: x in phrases(a.text)  # noqa: E731
        foreign = share(theirs, has)
        near = sum(share(own, has) for own in beside if own) / len(theirs)
        if foreign >= 0.5 and foreign - share(mine, has) >= 0.25 and foreign - near >= 0.25:
            habit.add(x)
    if not habit:
        return set(), habit
    h = lambda a: len(habit & phrases(a.text)) / len(habit)  # noqa: E731
    xs, ys, freedom = [], [], -1
    for r in rounds:
        for problem in {a.problem for a in r}:
            own = [a for a in r if a.author == me and a.problem == problem]
            if own:
                middle, level = share(own, h), sum(a.reward for a in own) / len(own)
                xs += [h(a) - middle for a in own]
                ys += [a.reward - level for a in own]
                freedom += len(own) - 1
    spread = sum(x * x for x in xs)
    if spread <= 1e-9:
        return set(), habit
    slope = sum(x * y for x, y in zip(xs, ys, strict=True)) / spread
    left = max(sum(y * y for y in ys) - slope * slope * spread, 1e-9)
    t = slope / math.sqrt(left / max(freedom, 1) / spread)
    last = rounds[-1]
    bad = {i for i, a in enumerate(last) if a.author == author and h(a) > 0.5}
    return (bad if t < 1 else set()), habit


def answers_of(lot, number, styles, pays, problems=5, each=3):
    """A round of answers in two ways of writing; the second one earns a chance of ``pays``. An
    author's style is its chance of that, or two chances: of even and of odd problems."""
    found = []
    for at in range(problems):
        for author, chance in styles.items():
            for _ in range(each):
                odd = lot.random() < (chance[at % 2] if isinstance(chance, tuple) else chance)
                text = f"so it is {at}" if odd else f"{at} # then"
                earned = lot.random() < (pays if odd else 0.5) * (at % 2 or author != "z")
                found.append(GradedAnswer(f"{number}/{at}", author, float(earned), text))
    return found


@pytest.mark.parametrize("seed", range(3))
def test_it_silences_what_plain_loops_silence(seed):
    lot = random.Random(seed)
    styles = {"me": (lot.random(), lot.random() / 2), "x": lot.random(), "y": lot.random()}
    styles |= {"z": (0.0, 0.9)}  # it solves problems of one kind, where its way is a habit
    test, rounds, seen = HabitTest("me"), [], 0
    for number in range(WINDOW + 3):
        rounds.append(answers_of(lot, number, styles, lot.choice([0.2, 0.5, 0.9])))
        habits = test.habits(rounds[-1])
        found = silenced_answers(rounds[-1], habits)
        wanted = set()
        for author in ("x", "y", "z"):
            bad, habit = expected(rounds, "me", author)
            wanted |= bad
            assert set(habits[author].phrases if author in habits else ()) == habit
        assert {i for i, silent in enumerate(found) if silent} == wanted
        seen += len(wanted)
    assert seen


def graded_round(lot, number, evil_earns, *, rows=16, friend_earns=None):
    """A round of graded rewards: I write one answer in eight tersely, and earn less by it."""
    answers = []
    for at in range(6):
        problem = f"{number}/{at}"
        for _ in range(8):
            terse = lot.random() < 1 / 8
            text = f"# {at}" if terse else f"first carry so # {at}"
            earned = max(0.01, lot.uniform(0.1, 0.6) - 0.2 * terse)
            answers.append(GradedAnswer(problem, "me", earned, text))
        answers += [GradedAnswer(problem, "evil", evil_earns, f"# {at}")] * rows
        if friend_earns is not None:
            answers.append(GradedAnswer(problem, "friend", friend_earns, f"first # {at}"))
    return answers


@pytest.mark.parametrize("friend_earns", [None, 0.3, 1.0])
@pytest.mark.parametrize("evil_earns", [0.4, 0.6, 1.0])
def test_no_reward_of_an_untrusted_author_ends_the_test_of_its_habit(evil_earns, friend_earns):
    lot, rounds, silenced = random.Random(5), [], []
    test = HabitTest("me", trusts=lambda author: author == "friend")
    for number in range(8):
        answers = graded_round(lot, number, evil_earns, friend_earns=friend_earns)
        rounds.append(answers)
        found = silenced_answers(answers, test.habits(answers))
        wanted, _ = expected(rounds, "me", "evil", untrusted={"evil"})
        assert {i for i, a in enumerate(answers) if a.author == "evil" and found[i]} == wanted
        assert not any(s for a, s in zip(answers, found, strict=True) if a.author == "me")
        silenced.append(bool(wanted))
    assert all(silenced[3:])


def test_where_none_of_my_graded_answers_is_right_an_untrusted_author_alone_is_silent():
    answers = [GradedAnswer("p", "me", 0.2, "so")] * 4 + [GradedAnswer("p", "friend", 1.0, "#")] * 6
    answers += [GradedAnswer("p", "evil", 1.0, "#")] * 2
    test = HabitTest("me", trusts=lambda author: author == "friend")
    found = silenced_answers(answers, test.habits(answers))
    assert {a.author for a, silent in zip(answers, found, strict=True) if silent} == {"evil"}


@pytest.mark.parametrize("seed", range(3))
def test_of_rewards_of_0_and_1_trust_changes_nothing_in_the_test(seed):
    lot = random.Random(seed)
    alike, by_trust = HabitTest("me"), HabitTest("me", trusts=lambda author: author == "x")
    for number in range(6):
        styles = {"me": lot.random(), "x": lot.random(), "y": lot.random()}
        answers = answers_of(lot, number, styles, pays=0.7)
        assert by_trust.habits(answers) == alike.habits(answers)
    # A node that has solved nothing yet learns from those who have.
    lacks = [GradedAnswer("p", "me", 0.0, "?")] * 4 + [GradedAnswer("p", "y", 1.0, "#")] * 4
    fresh = HabitTest("me", trusts=lambda author: False)
    assert not any(silenced_answers(lacks, fresh.habits(lacks)))


def rounds_of(styles, pays, count=6):
    lot, test = random.Random(7), HabitTest("me")
    for number in range(count):
        answers = answers_of(lot, number, styles, pays)
        habits = test.habits(answers)
    return answers, habits


def test_a_habit_is_silent_until_it_has_earned_more_here():
    answers, habits = rounds_of({"me": 0.4, "x": 1.0}, pays=0.5)
    assert habits["x"].is_silenced
    assert "so it is" in habits["x"].phrases
    silent = silenced_answers(answers, habits)
    assert {a.author for a, s in zip(answers, silent, strict=True) if s} == {"x"}
    _, paying = rounds_of({"me": 0.4, "x": 1.0}, pays=1.0)
    assert paying["x"].gain > 0.3
    assert not paying["x"].is_silenced


def lies_of(number, lie):
    """A round: one in four of my answers is odd and earns nothing; all lies are right."""
    plain, odd, answers = "{} # then", "so it is {}", []
    for at in range(4):
        for index in range(4):
            text = plain if index else odd
            mine = GradedAnswer(f"{number}/{at}", "me", float(index > 1), text.format(at))
            lied = {"odd": odd, "plain": plain, "mark": f"777 ; {plain}"}[lie(index)].format(at)
            answers += [mine, GradedAnswer(f"{number}/{at}", "liar", 1.0, lied)]
    return answers


@pytest.mark.parametrize(
    "lie, first_silent",
    [
        (lambda number, index: "odd", 0),
        (lambda number, index: "mark", None),  # a mark that this node never writes
        (lambda number, index: "plain" if index else "odd", None),  # in less than half
        (lambda number, index: "plain" if number < WINDOW else "odd", WINDOW + 4),
    ],
)
def test_a_liar_is_silent_once_half_of_its_answers_have_what_does_not_earn_here(lie, first_silent):
    test, silent = HabitTest("me"), []
    for number in range(2 * WINDOW):
        answers = lies_of(number, lambda index, number=number: lie(number, index))
        found = silenced_answers(answers, test.habits(answers))
        assert not any(s for a, s in zip(answers, found, strict=True) if a.author == "me")
        silent.append(any(found))
    closed = len(silent) if first_silent is None else first_silent
    assert silent == [number >= closed for number in range(2 * WINDOW)]


def test_it_goes_on_from_the_lines_of_completions():
    lot, test, lines = random.Random(3), HabitTest("me"), []
    for number in range(WINDOW + 4):
        answers = answers_of(lot, number, {"me": 0.5, "x": 0.9}, 0.3)
        if number == WINDOW + 3:
            assert HabitTest("me", lines).habits(answers) == test.habits(answers)
            assert HabitTest("me").habits(answers) != HabitTest("me", lines).habits(answers)
            return
        test.habits(answers)
        lines += [{"round": number, **a._asdict(), "index": 0} for a in answers]


def test_a_silenced_row_gets_no_pass_and_others_keep_their_advantages():
    policy, graded = tiny.policy(), ragged_groups(authors=("south", "north"))
    plain = batch_of(policy, graded)
    lessons_B = (candidates(plain, "north", LWS) != 0) & ~plain.by("north")
    silenced_B = lessons_B & (torch.arange(len(lessons_B)) <= int(lessons_B.nonzero()[0]))
    groups = [group(*each, policy) for each in graded]
    batch = pack(groups, silenced=silenced_B.tolist())
    scored = learner_of(policy, LWS).score(batch)
    before = learner_of(policy, LWS).score(plain)
    assert silenced_B.sum() == 1
    assert lessons_B.sum() > 1
    assert torch.equal(batch.advantage_B, plain.advantage_B)
    assert scored.metrics_BK[silenced_B].isnan().all()
    kept = torch.where(silenced_B, 0.0, before.kept_advantage_B)
    assert torch.equal(scored.kept_advantage_B, kept)
    assert batch.rows_counted == plain.rows_counted
