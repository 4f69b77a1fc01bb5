"""The page as it is used: by pointer, by keyboard, on a phone, and by a screen reader.

Most tests look at one loaded page, of a run with something of everything; each can be run alone.
"""

import msgspec
import pytest

from potluck.show.web.page import kept_page, statistics
from potluck.show.web.views import CurvesView, RunView
from show.web.browser.conftest import opening
from show.web.made_views import (
    MAZE,
    NOW_S,
    made_control,
    made_episode,
    made_kept,
    made_run,
    made_text,
    states,
)
from show.web.stand_in_page_server import Told, serving

pytestmark = pytest.mark.page
ROUNDS = 18
"""So many are not smoothed."""
BACK = "potluck join r/small/join.json --as small"


@pytest.fixture(scope="module")
def run():
    made = made_run(rounds=ROUNDS)
    better, worse = (0.06, 0.035, 0.085), (-0.08, -0.1, -0.06)
    for learner, cells in made.matrix.items():
        for author, cell in cells.items():
            rows = 40.0 if (learner, author) == ("large", "small") else 90.0
            taken = 0.99 if author == "wide" else 1.0
            cell |= {"success_weight": taken, "gradient_share": None, "rows_trained": rows}
            cell |= {"filtered_share_negative": 0.0, "k1_positive": 0.5}
    made.matrix["large"]["small"]["staleness"] = 11.0
    timed = {"seconds/write": [4.8] * ROUNDS, "seconds/wait": [1.2] * ROUNDS}
    timed |= {"round": [float(at) for at in range(ROUNDS)], "seconds/unheard-of": [0.0] * ROUNDS}
    timed |= {f"own_earned_nothing/{kind}": [9.0] * ROUNDS for kind in ("cut", "empty", "wrong")}
    for kind, last in (("cut", 3.0), ("empty", 0.0), ("wrong", 12.0)):
        timed[f"own_earned_nothing/{kind}"][-1] = last
    timed["own_reward_mean"] = [0.25] * (ROUNDS - 5) + [0.5, 0.5, 0.7, 0.8, 1.0]
    made.curves["large"] = CurvesView(first=0, columns=timed)
    made.evaluations["large"] |= {"partial": [True] * 2, "rewards/brevity": [0.5] * 2}
    made.evaluations["large"] |= {"constant": [0.27] * 2}
    gone = {"state": "stopped", "round": 7, "back": BACK}
    return msgspec.structs.replace(
        made,
        rounds=2 * ROUNDS,
        nodes=states(made, large={"round": ROUNDS}, small=gone),
        controls=[*map(made_control, ("large", "small", "wide"), (better, worse, None))],
    )


PAID = [
    ("decided", "good", 0.996, True),
    ("decided", "bad", -0.001, False),
    ("undecided", "better", 0.75, None),
    ("undecided", "worse", 0.25, None),
    ("alike", "one", 0.5, None),
    ("alike", "other", 0.5, None),
]
"""Completions: problem, author, reward, and whether it is right."""


@pytest.fixture(scope="module")
def page(browser, run):
    told = Told(run)
    text = made_text(59, 3, "small")
    cut = msgspec.structs.replace(text.recorded, numbers=text.recorded.numbers[2:])
    told.episodes = [
        msgspec.structs.replace(text, author="other", recorded=cut),
        *(made_episode(59, 0), made_episode(59, 1, 12), made_episode(59, 4)),
    ]
    with serving(told) as address, opening(browser) as show:
        page = show(f"{address}#/run/", viewport={"width": 1400, "height": 9000})
        page.locator(".turns").nth(2).wait_for()
        yield page


def test_the_answer_comes_first_and_a_control_is_in_its_nodes_chart(page):
    first = page.locator("main section").first
    first.get_by_text("2 comparisons: 1 better together, 1 worse together.").wait_for()
    assert first.locator("h2").inner_text() == "Does it help me?"
    large = first.locator("tbody tr").first.inner_text()
    assert all(word in large for word in ("better together", ".720", "+.060 [+.035, +.085]"))
    first.get_by_text("Controls are being made: wide (half) round 30 of 36.").wait_for()
    assert first.locator("code").count() == 0
    first.get_by_text("over 288 problems, one seed").wait_for()
    heads = first.locator("thead th").all_inner_texts()
    assert heads[-2:] == ["greedy mean reward: together, alone", "written: together, alone"]
    page.locator("#help").get_by_role("button", name="by itself: half").nth(2).wait_for()


def test_the_first_screen_has_reward_accuracy_and_the_time_left(page):
    row = page.locator('tr[data-node="large"]')
    row.get_by_text("took 2 min, about 2 min left").wait_for()
    row.get_by_text("0.700").wait_for()  # nor percentages
    assert row.locator("td[data-label=Waited]").inner_text() == "20%"
    heads = page.locator(".nodes thead th")
    assert heads.nth(4).inner_text() == "Greedy mean reward"  # mean rewards are no accuracies
    row.get_by_text("release 0.1.0").wait_for()
    row.get_by_text("earned 0 in the last round: 12 wrong, 3 cut off", exact=True).wait_for()
    row.get_by_text("a constant: 0.270").wait_for()
    other = page.locator('tr[data-node="wide"]').inner_text()
    assert not any(words in other for words in ("earned 0", "a constant"))


@pytest.fixture(scope="module")
def paid(browser, run):
    told, text = Told(run), made_text(59, 3, "small")
    told.episodes = [
        msgspec.structs.replace(text, problem=problem, author=author, reward=reward, right=right)
        for problem, author, reward, right in PAID
    ]
    with serving(told) as address, opening(browser) as show:
        page = show(f"{address}#/run/", viewport={"width": 1400, "height": 9000})
        page.get_by_text("decided", exact=True).wait_for()
        yield page


@pytest.mark.parametrize(
    "author, words, kind",
    [
        ("good", "right, reward 1.00", "right"),
        ("bad", "wrong, reward 0.00", "wrong"),
        ("better", "reward 0.75, above its group", "above"),
        ("worse", "reward 0.25, below its group", "below"),
        ("one", "reward 0.50", ""),
    ],
)
def test_a_completion_is_right_by_the_function_that_decides_else_it_is_beside_its_group(
    paid, author, words, kind
):
    line = paid.locator("li.text", has=paid.get_by_text(f"{author}, no. 3", exact=True))
    pill = line.locator(".pill").first
    assert pill.inner_text() == words
    assert pill.get_attribute("class").split() == ["pill", *kind.split()]
    colours = {"right": "--good", "above": "--good", "wrong": "--bad", "below": "--bad"}
    wanted = paid.evaluate(
        """(name) => {
            const probe = document.body.appendChild(document.createElement("span"));
            probe.style.color = `var(${name || "--ink"})`;
            const found = getComputedStyle(probe).color;
            probe.remove();
            return found;
        }""",
        colours.get(kind, ""),
    )
    assert pill.evaluate("(node) => getComputedStyle(node).color") == wanted


def test_a_node_that_stopped_has_its_way_back_and_old_cells(page):
    page.locator("#nodes").get_by_text("To bring back small:").wait_for()
    assert page.locator("#nodes code").inner_text() == BACK
    old = page.locator("td.old")
    places = old.evaluate_all("all => all.map((td) => [td.dataset.down, td.dataset.across].join())")
    assert places == ["0,1", "1,0", "1,1", "2,1"]
    assert "more than 10 rounds ago" in old.first.get_attribute("aria-label")


def test_the_matrix_opens_on_what_differs_and_menus_have_declared_numbers_alone(page):
    shown = page.get_by_role("combobox", name="Show", exact=True)
    shown.select_option(index=0)
    page.reload()
    page.locator("#matrix td.own").first.wait_for()
    assert shown.locator("option:checked").inner_text() == "Completions learned from"
    declared = statistics()
    titles = {kind: [each["title"] for each in of.values()] for kind, of in declared.items()}
    assert {*shown.locator("option").all_inner_texts()} <= {*titles["authors"]}
    fields = page.get_by_role("combobox", name="Field", exact=True).locator("option")
    means = [title.replace("accuracy", "mean reward") for title in titles["curves"]]
    assert {*fields.all_inner_texts()} <= {*means, "Reward: brevity"}
    assert "Reward: brevity" in fields.all_inner_texts()


def test_the_keyboard_walks_the_matrix_which_shows_the_field_that_is_chosen(page, run):
    page.get_by_role("combobox", name="Show", exact=True).select_option(label="Distance k1")
    first = page.locator('td[data-down="0"][data-across="0"]')
    first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    reading = page.locator("#matrix .reading").first
    assert reading.inner_text().startswith("wide learns from small: Distance k1")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="What wide learns from small").wait_for()
    assert page.locator("td[tabindex='0']").count() == 1
    cell = page.locator('td[data-down="1"][data-across="0"]')
    k1 = run.matrix["large"]["small"]["k1"]
    assert float(cell.inner_text().replace("\u2212", "-")) == pytest.approx(k1, abs=0.001)


def test_every_chart_has_its_table(page):
    page.locator('td[data-down="1"][data-across="0"]').click()
    page.locator(".pair figure").nth(5).wait_for()
    charts = page.locator("figure.chart")
    for place in range(charts.count()):
        chart = charts.nth(place)
        chart.locator("summary").click()
        chart.locator("tbody tr").first.wait_for()
        drawn = chart.locator("path.curve[data-points]").count()
        assert drawn == chart.locator("thead th").count() - 1 > 0


def test_a_chart_is_read_and_zoomed_by_keyboard_and_by_pointer(page, run):
    picture = page.locator("#curves .picture")
    picture.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    tip = page.locator("#curves .tip")
    assert tip.locator(".when").inner_text() == "round 2"
    expected = run.curves["large"].columns["own_reward_mean"][1]
    assert f"{expected:.3f}" in tip.get_by_text("large").locator("..").inner_text()
    assert page.locator("#say").inner_text().startswith("round 2: ")
    page.keyboard.press("+")
    reset = page.locator("#curves").get_by_role("button", name="Show all rounds")
    reset.wait_for()
    # At round 2 of 18, half of what was shown is left.
    page.wait_for_function(
        "() => [...document.querySelectorAll('#curves .x')].every((x) => x.textContent <= 10)"
    )
    page.keyboard.press("Escape")
    reset.wait_for(state="hidden")
    box = picture.bounding_box()
    page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 120, steps=4)
    page.mouse.up()
    reset.wait_for()
    page.wait_for_function(
        "() => Number(document.querySelector('#curves path[data-points]').dataset.points) < 8"
    )
    assert page.locator("#curves path.curve[data-points]").count() == 3
    reset.click()
    name = page.locator("#curves").get_by_role("button", name="small")
    name.click()
    assert name.get_attribute("aria-pressed") == "false"
    page.wait_for_function(
        "() => document.querySelectorAll('#curves path.curve[data-points]').length === 2"
    )
    name.click()


def test_completions_have_their_tokens_and_what_became_of_them(page):
    texts = page.locator("#texts")
    ratio = texts.get_by_text("large, no. 2").locator("../..").locator(".token[title]").first
    assert ratio.get_attribute("title").startswith("log-ratio ")
    assert ratio.get_attribute("title").endswith(" nats")
    likelihood = texts.get_by_text("small, no. 0").locator("../..").locator(".token[title]").first
    assert likelihood.get_attribute("title").startswith("ln p ")
    assert texts.locator(".legendline").count() == 2
    assert texts.get_by_text("too far from what this model writes").count() > 0
    assert texts.locator(".answer").first.inner_text() == "Right answer: 1477"
    tokens = texts.get_by_text("other, no. 3").locator("../..").locator(".token")
    assert tokens.count() > 1  # their numbers do not fit them
    assert tokens.locator("xpath=self::*[@title]").count() == 0
    rounds = page.get_by_role("combobox", name="Round", exact=True)
    for choice, shown in (("55", "round 55"), ("newest (60)", "round 60")):
        rounds.select_option(label=choice)
        texts.locator("article").last.get_by_text(shown, exact=True).wait_for()


def test_an_episode_shows_who_said_what_and_the_tokens_of_each_turn(page):
    turns = page.locator(".turns")
    maze = "\n".join(MAZE)
    said = turns.nth(1).locator("li").all_text_contents()
    assert said[:3] == ["model: east", f"user: {maze}", "model: south"]
    signs = "li => getComputedStyle(li, '::before').content[1]"
    assert [turns.nth(1).locator("li").nth(at).evaluate(signs) for at in (0, 1)] == [">", "<"]
    written = turns.first.locator(".wrote")
    assert [one.locator(".token").all_inner_texts() for one in written.all()] == [
        ["east", "<end>"], ["south", "<end>"], ["north", "<end>"],
    ]  # fmt: skip
    assert turns.nth(1).locator(".token").count() == 0  # not recorded: the words alone
    assert page.get_by_text("12 turns").count() == 1
    # A maze keeps its form, and a long episode has a place of its own to scroll.
    assert turns.nth(1).locator("pre").nth(1).inner_text() == maze
    family = "node => getComputedStyle(node).fontFamily"
    fonts = [one.evaluate(family) for one in page.locator(".question").all()]
    assert ["monospace" in font for font in fonts] == [False, True]
    assert turns.nth(1).locator("..").evaluate("box => box.scrollHeight > 1.5 * box.clientHeight")


def test_events_are_told_newest_first_and_without_checkpoints(page, run):
    assert "checkpoint" in {event.kind for event in run.events}
    told_last = [event.text for event in reversed(run.events) if event.kind != "checkpoint"]
    shown = page.locator("#events li").all_inner_texts()
    assert len(shown) == len(told_last)
    assert all(text in line for text, line in zip(told_last, shown, strict=True))


def test_a_phone_shows_everything_without_scrolling_sideways(told, address, show):
    told.episodes = [made_episode(59, 1, 12, extra=300 * "x")]
    better = (0.06, 0.035, 0.085)
    told.whole = msgspec.structs.replace(told.whole, controls=[made_control("large", better)])
    page = show(f"{address}#/run/", viewport={"width": 360, "height": 9000})
    # Cards: nothing is beside the screen.
    page.locator("#answer tbody tr").wait_for()
    cards = page.locator("#answer .scroll")
    assert cards.evaluate("one => one.scrollWidth <= one.clientWidth")
    for last in (".turns pre", ".entry table"):
        page.locator(last).last.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.get_by_role("link", name="Potluck").click()
    page.get_by_text("recipe.json is not JSON").wait_for()
    page.get_by_role("link", name="digits-size").click()
    page.locator('tr[data-node="large"]').wait_for()


# ------------------------------------------------------------------ for everybody


def trouble():
    whole = made_run(rounds=12)
    why = {"state": "silent", "why": "nothing was heard for 12 s"}
    lost = {"state": "quarantined", "why": "3 messages that cannot be read"}
    back = {"state": "recovering", "why": "2 rounds behind"}
    return msgspec.structs.replace(whole, nodes=states(whole, large=why, small=lost, wide=back))


@pytest.mark.parametrize("view", ["run", "empty", "start", "kept"])
def test_an_audit_finds_nothing_serious(told, address, browser, axe, tmp_path, view):
    place = {"start": f"{address}#/"}
    if view == "run":
        told.whole = trouble()
        told.episodes = [made_episode(59, 0), made_episode(59, 1, 12)]
    elif view == "empty":
        told.whole = RunView(name="new", now_s=NOW_S)
    elif view == "kept":
        file = tmp_path / "kept.html"
        file.write_text(kept_page(made_kept()), encoding="utf-8")
        place["kept"] = file.as_uri()
    # The audit's script is put into the page, which the page's own policy forbids.
    context = browser.new_context(
        bypass_csp=True, reduced_motion="reduce", viewport={"width": 1200, "height": 7000}
    )
    page = context.new_page()
    page.goto(place.get(view, f"{address}#/run/"))
    page.locator("h1").wait_for()
    if view == "run":
        page.locator('td[data-down="1"][data-across="0"]').click()
        page.locator(".pair figure").nth(5).wait_for()
        page.locator(".text").first.wait_for()
        for summary in ("#curves summary", "#texts summary"):
            page.locator(summary).first.click()
    # The run in a kept file is one like the other.
    part = {"exclude": [["#run"]]} if view == "kept" else None
    found = axe.run(page, context=part).response["violations"]
    page.emulate_media(color_scheme="dark")  # other colours, and nothing else
    found += axe.run(page, part, {"runOnly": ["color-contrast"]}).response["violations"]
    context.close()
    serious = [
        (one["id"], one["nodes"][0]["target"], one["nodes"][0].get("failureSummary"))
        for one in found
        if one["impact"] in ("serious", "critical")
    ]
    assert serious == []
