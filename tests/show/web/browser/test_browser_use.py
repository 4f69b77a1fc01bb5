"""The page as it is used: by pointer, by keyboard, on a phone, and by a screen reader."""

import msgspec
import pytest

from potluck.show.web.page import kept_page, statistics
from potluck.show.web.views import RunView
from show.web.made_views import MAZE, NOW_S, made_episode, made_kept, made_text, states

pytestmark = pytest.mark.page


def test_every_chart_has_its_table(told, address, show):
    page = show(f"{address}#/run/", viewport={"width": 1200, "height": 6000})
    page.locator('td[data-down="1"][data-across="0"]').click()
    page.locator(".pair figure").nth(6).wait_for()
    charts = page.locator("figure.chart")
    for place in range(charts.count()):
        chart = charts.nth(place)
        chart.locator("summary").click()
        chart.locator("tbody tr").first.wait_for()
        drawn = chart.locator("path.curve[data-points]").count()
        assert drawn == chart.locator("thead th").count() - 1 > 0
    assert page.locator("#curves tbody tr").count() <= 60


def test_a_chart_is_read_and_zoomed_by_keyboard_and_by_pointer(told, address, show):
    page = show(f"{address}#/run//curves", viewport={"width": 1200, "height": 1400})
    page.get_by_role("combobox", name="Smoothing", exact=True).select_option(label="none")
    page.locator("#curves path.raw").first.wait_for(state="detached")
    picture = page.locator("#curves .picture")
    picture.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    tip = page.locator("#curves .tip")
    assert tip.locator(".when").inner_text() == "round 2"
    expected = told.whole.curves["large"].columns["own_reward_mean"][1]
    assert f"{expected:.0%}" in tip.get_by_text("large").locator("..").inner_text()
    assert page.locator("#say").inner_text().startswith("round 2: ")
    page.keyboard.press("+")
    reset = page.locator("#curves").get_by_role("button", name="Show all rounds")
    reset.wait_for()
    # At round 2 of 60, half of what was shown is left.
    page.wait_for_function(
        "() => [...document.querySelectorAll('#curves .x')].every((x) => x.textContent <= 30)"
    )
    page.keyboard.press("Escape")
    reset.wait_for(state="hidden")
    picture.scroll_into_view_if_needed()
    box = picture.bounding_box()
    page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 120, steps=4)
    page.mouse.up()
    reset.wait_for()
    curves = page.locator("#curves path.curve[data-points]")
    page.wait_for_function(
        "() => Number(document.querySelector('#curves path[data-points]').dataset.points) < 20"
    )
    assert curves.count() == 3
    name = page.locator("#curves").get_by_role("button", name="small")
    name.click()
    assert name.get_attribute("aria-pressed") == "false"
    page.wait_for_function(
        "() => document.querySelectorAll('#curves path.curve[data-points]').length === 2"
    )


def test_the_keyboard_walks_the_matrix_which_shows_the_field_that_is_chosen(told, address, show):
    page = show(f"{address}#/run//matrix")
    first = page.locator('td[data-down="0"][data-across="0"]')
    first.wait_for()
    first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    reading = page.locator("#matrix .reading").first
    assert reading.inner_text().startswith("wide learns from small: Taken")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="What wide learns from small").wait_for()
    assert page.locator("td[tabindex='0']").count() == 1
    page.get_by_role("combobox", name="Show", exact=True).select_option(label="Distance k1")
    cell = page.locator('td[data-down="1"][data-across="0"]')
    k1 = told.whole.matrix["large"]["small"]["k1"]
    page.wait_for_function("() => document.querySelector('td.own').textContent === '0'")
    assert float(cell.inner_text().replace("\u2212", "-")) == pytest.approx(k1, abs=0.001)
    assert cell.get_attribute("aria-label").startswith("large learns from small: Distance k1")


def test_the_matrix_opens_on_what_differs_and_menus_have_declared_numbers_alone(
    told, address, show
):
    for learner, cells in told.whole.matrix.items():
        for author, cell in cells.items():
            rows = 40.0 if (learner, author) == ("large", "small") else 90.0
            taken = 0.99 if author == "wide" else 1.0
            cell |= {"success_weight": taken, "gradient_share": None, "rows_trained": rows}
            cell |= {"filtered_share_negative": 0.0, "k1_positive": 0.5}
    told.whole.curves["large"].columns["seconds/unheard-of"] = [1.0] * 60
    told.whole.evaluations["large"]["rewards/brevity"] = [0.5] * 7
    page = show(f"{address}#/run//curves", viewport={"width": 1200, "height": 6000})
    shown = page.get_by_role("combobox", name="Show", exact=True)
    page.locator("#matrix td.own").first.wait_for()
    assert shown.locator("option:checked").inner_text() == "Completions learned from"
    declared = statistics()
    titles = {kind: [each["title"] for each in of.values()] for kind, of in declared.items()}
    assert {*shown.locator("option").all_inner_texts()} <= {*titles["authors"]}
    fields = page.get_by_role("combobox", name="Field", exact=True).locator("option")
    assert {*fields.all_inner_texts()} <= {*titles["curves"], "Reward: brevity"}
    assert "Reward: brevity" in fields.all_inner_texts()


def test_completions_have_their_tokens_and_what_became_of_them(told, address, show):
    text = made_text(59, 3, "small")
    cut = msgspec.structs.replace(text.recorded, numbers=text.recorded.numbers[2:])
    told.episodes = [msgspec.structs.replace(text, author="other", recorded=cut)]
    page = show(f"{address}#/run//texts")
    texts = page.locator("#texts")
    texts.locator(".text").first.wait_for()
    ratio = texts.locator(".token[title]").first.get_attribute("title")
    assert ratio.startswith("log-ratio ")
    assert ratio.endswith(" nats")
    likelihood = texts.get_by_text("small, no. 0").locator("../..").locator(".token[title]").first
    assert likelihood.get_attribute("title").startswith("ln p ")
    assert texts.locator(".legendline").count() == 2
    assert texts.get_by_text("too far from what this model writes").count() > 0
    assert texts.locator(".answer").first.inner_text() == "Right answer: 1477"
    tokens = page.get_by_text("other, no. 3").locator("../..").locator(".token")
    assert tokens.count() > 1  # their numbers do not fit them
    assert tokens.locator("xpath=self::*[@title]").count() == 0


def test_an_episode_shows_who_said_what_and_the_tokens_of_each_turn(told, address, show):
    told.episodes = [made_episode(59, 0), made_episode(59, 1, 12), made_episode(59, 4)]
    page = show(f"{address}#/run//texts")
    turns = page.locator(".turns")
    turns.first.wait_for()
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
    assert "monospace" in page.locator(".question").first.evaluate(family)
    assert "monospace" not in page.locator(".question").nth(1).evaluate(family)
    assert turns.nth(1).locator("..").evaluate("box => box.scrollHeight > 1.5 * box.clientHeight")


def test_the_start_page_leads_to_runs(told, address, show):
    page = show(address)
    page.get_by_text("recipe.json is not JSON").wait_for()
    page.get_by_role("link", name="digits-size").click()
    page.locator('tr[data-node="large"]').wait_for()


def test_a_phone_shows_everything_without_scrolling_sideways(told, address, show):
    told.episodes = [made_episode(59, 1, 12, extra=300 * "x")]
    page = show(f"{address}#/run/", viewport={"width": 360, "height": 9000})
    for last in (".turns pre", ".entry table"):
        page.locator(last).last.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.get_by_role("link", name="Potluck").click()


# ------------------------------------------------------------------ for everybody


def trouble(told):
    why = {"state": "silent", "why": "nothing was heard for 12 s"}
    lost = {"state": "quarantined", "why": "3 messages that cannot be read"}
    back = {"state": "recovering", "why": "2 rounds behind"}
    return msgspec.structs.replace(
        told.whole, nodes=states(told.whole, large=why, small=lost, wide=back)
    )


@pytest.mark.parametrize("view", ["run", "empty", "start", "kept"])
def test_an_audit_finds_nothing_serious(told, address, browser, axe, tmp_path, view):
    place = {"start": f"{address}#/"}
    if view == "run":
        told.whole = trouble(told)
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
    if view in ("run", "kept"):
        page.locator('td[data-down="1"][data-across="0"]').click()
        page.locator(".pair figure").nth(6).wait_for()
        page.locator(".text").first.wait_for()
        for summary in page.locator("summary").all()[:6]:
            summary.click()
    found = axe.run(page).response["violations"]
    page.emulate_media(color_scheme="dark")  # other colours, and nothing else
    found += axe.run(page, options={"runOnly": ["color-contrast"]}).response["violations"]
    context.close()
    serious = [
        (one["id"], one["nodes"][0]["target"], one["nodes"][0].get("failureSummary"))
        for one in found
        if one["impact"] in ("serious", "critical")
    ]
    assert serious == []


def test_events_are_told_newest_first_and_without_checkpoints(told, address, show):
    assert "checkpoint" in {event.kind for event in told.whole.events}
    page = show(f"{address}#/run//events")
    lines = page.locator("#events li")
    lines.first.wait_for()
    newest_first = reversed(told.whole.events)
    told_last = [event.text for event in newest_first if event.kind != "checkpoint"]
    shown = lines.all_inner_texts()
    assert len(shown) == len(told_last)
    assert all(text in line for text, line in zip(told_last, shown, strict=True))
