"""The page at a glance: does it help, how far is it, who is missing, and is all of it readable."""

import re

import msgspec
import pytest

from potluck.show.web.page import kept_page
from potluck.show.web.views import CurvesView, Kept, KeptRun
from show.web.made_views import NOW_S, made_control, made_run, states

pytestmark = pytest.mark.page
COMMAND = "potluck run r/recipe.json --out r --resume --control half"
EIGHT = ["ada", "bert", "cleo", "dora", "emil", "a-name-of-twenty-four-ch", "gus", "hana"]


def changed(told, **changes):
    told.whole = msgspec.structs.replace(told.whole, **changes)


def test_the_answer_comes_first_and_a_control_is_in_its_nodes_chart(told, address, show):
    better, worse = (0.06, 0.035, 0.085), (-0.08, -0.1, -0.06)
    made = [made_control("large", better), made_control("small", worse), made_control("wide")]
    changed(told, controls=made, control_command=COMMAND)
    page = show(f"{address}#/run/", viewport={"width": 1400, "height": 4000})
    first = page.locator("main section").first
    first.get_by_text("2 comparisons: 1 better together, 1 worse together.").wait_for()
    assert first.locator("h2").inner_text() == "Does it help me?"
    large = first.locator("tbody tr").first.inner_text()
    assert all(word in large for word in ("better together", ".720", "+.060 [+.035, +.085]"))
    first.get_by_text("Controls are being made: wide (half) round 30 of 60.").wait_for()
    assert first.locator("code").count() == 0
    first.get_by_text("over 288 problems, one seed").wait_for()
    heads = first.locator("thead th").all_inner_texts()
    assert heads[-2:] == ["greedy accuracy: together, alone", "written: together, alone"]
    page.locator("#help").get_by_role("button", name="by itself: half").nth(2).wait_for()
    page.set_viewport_size({"width": 390, "height": 4000})  # cards: nothing is beside the screen
    assert first.locator(".scroll").evaluate("one => one.scrollWidth <= one.clientWidth")


def test_without_a_control_it_says_how_to_make_one(told, address, show, tmp_path):
    changed(told, controls=[], control_command=COMMAND)
    page = show(f"{address}#/run/")
    answer = page.locator("#answer")
    assert answer.locator("code").inner_text() == COMMAND
    assert "When the run is done" in answer.inner_text()
    file = tmp_path / "kept.html"  # elsewhere the folder has another name
    file.write_text(kept_page(Kept(title="r", runs={"r": KeptRun(view=told.whole)})), "utf-8")
    page = show(file.as_uri())
    answer.get_by_text("Only a control tells").wait_for()
    assert page.locator("code").count() == 0


def test_of_one_node_it_says_that_there_is_nothing_to_tell(told, address, show):
    page = show(f"{address}#/run/")
    told.change(nodes=told.whole.nodes[:1])
    said = "There is one node: it learns from nobody else."
    page.locator("#answer").get_by_text(said).wait_for()


def test_the_first_seconds_say_who_is_waited_for(told, address, show):
    waits = {"round": 0, "phase": "wait", "done": 1, "total": 2, "begins_s": NOW_S + 41}
    away = {"round": 0, "state": "awaited", "why": "nothing was heard of it yet"}
    begun = states(told.whole, large=waits, small=waits, wide=away)
    changed(told, nodes=begun, curves={}, evaluations={}, matrix={}, events=[])
    page = show(f"{address}#/run/")
    page.get_by_text("3 nodes: 2 waiting to begin, 1 not here yet").wait_for()
    why = page.locator('tr[data-node="large"] .why').first
    assert re.fullmatch(r"waiting for wide \(1 of 2 here\), \d+ s left", why.inner_text())
    assert "learns from nobody else" not in page.locator("main").inner_text()
    met = {"begins_s": None}
    told.change(nodes=states(told.whole, large=met, small=met))
    page.get_by_text("3 nodes: 2 training, 1 not here yet").wait_for()
    assert why.inner_text() == ""


def test_the_first_screen_has_reward_accuracy_and_the_time_left(told, address, show):
    columns = {"round": [float(at) for at in range(20)], "seconds/write": [4.8] * 20}
    columns["seconds/wait"] = [1.2] * 20
    columns["own_reward_mean"] = [0.0] * 15 + [0.5, 0.5, 0.7, 0.8, 1.0]
    changed(told, nodes=states(told.whole, large={"round": 20}))
    told.whole.curves["large"] = CurvesView(first=0, columns=columns)
    told.whole.evaluations["large"]["partial"] = [True] * 7
    page = show(f"{address}#/run/", viewport={"width": 1400, "height": 1000})
    row = page.locator('tr[data-node="large"]')
    row.get_by_text("took 2 min, about 4 min left").wait_for()
    row.get_by_text("70%").wait_for()
    assert row.locator("td[data-label=Waited]").inner_text() == "20%"
    heads = page.locator(".nodes thead th")
    assert heads.nth(4).inner_text() == "Greedy mean reward"  # mean rewards are no accuracies
    row.get_by_text("release 0.1.0").wait_for()


def test_where_nobody_tells_seconds_no_time_is_told(told, address, show):
    told.whole = made_run(("large", "small"))
    for name, each in told.whole.curves.items():
        heard = {field: column for field, column in each.columns.items() if "/" not in field}
        told.whole.curves[name] = CurvesView(first=0, columns=heard)
    page = show(f"{address}#/run/")
    cell = page.locator('tr[data-node="large"] td[data-label="Round"]')
    cell.get_by_text("60 of 60").wait_for()
    assert cell.inner_text() == "60 of 60"
    assert page.locator('tr[data-node="large"] td[data-label=Waited]').inner_text() == "\u2013"


def test_nothing_of_eight_nodes_is_cut(told, address, show):
    told.whole = made_run(EIGHT)
    page = show(f"{address}#/run/", viewport={"width": 1400, "height": 5000})
    page.locator("#matrix td.own").nth(7).wait_for()
    page.locator("#help tbody tr").nth(6).wait_for()
    cut = "all => all.filter((one) => one.scrollWidth > one.clientWidth).length"
    assert page.locator("#nodes .scroll, #matrix .scroll, #help .scroll").evaluate_all(cut) == 0
    widths = page.locator("td[data-down]").evaluate_all("all => all.map((td) => td.clientWidth)")
    assert len(set(widths)) == 1
    strokes = page.locator("#curves path.curve:not(.raw)").evaluate_all(
        "all => all.map((path) => getComputedStyle(path).stroke)"
    )
    assert len(set(strokes)) == 8


def test_smoothing_lags_behind_nothing_and_a_node_can_be_lifted(told, address, show):
    told.whole = made_run(EIGHT)
    step = {"round": [float(at) for at in range(60)], "own_reward_mean": [0.0] * 30 + [1.0] * 30}
    told.whole.curves["gus"] = CurvesView(first=0, columns=step)
    page = show(f"{address}#/run//curves", viewport={"width": 1400, "height": 1000})
    path = page.locator('#curves path.curve[data-key="gus"]')
    path.wait_for(state="attached")
    heights = path.evaluate(
        "path => path.getAttribute('d').match(/[ML][^ML]+/g).map((at) => Number(at.split(' ')[1]))"
    )
    middle = (min(heights) + max(heights)) / 2
    assert next(at for at, height in enumerate(heights) if height < middle) == 30
    assert len(set(heights)) > 4  # smoothed by itself from 20 rounds on
    page.locator("#curves").get_by_role("button", name="gus").focus()
    page.locator("#curves path.lifted").wait_for(state="attached")
    assert page.locator("#curves path.lifted").get_attribute("data-key") == "gus"


def test_what_is_printed_has_all_charts(told, address, show):
    told.whole = made_run([f"node-{at}" for at in range(13)])
    page = show(f"{address}#/run/", viewport={"width": 1200, "height": 300})
    page.locator('tr[data-node="node-0"]').wait_for()
    assert page.locator("#curves path.curve").count() == 0
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.locator("#curves path.curve:not(.raw)").nth(12).wait_for(state="attached")


def test_completions_are_those_of_the_newest_round_when_one_comes_to_them(told, address, show):
    page = show(f"{address}#/run/", viewport={"width": 1200, "height": 300})
    page.locator("#texts .text").first.wait_for(state="attached")  # drawn ahead
    told.extra_text = "of the round that came later"
    columns = {"round": [60.0], "own_reward_mean": [0.5]}
    more = {name: CurvesView(first=60, columns=columns) for name in told.whole.curves}
    told.change(curves=more, nodes=states(told.whole, large={"round": 61}))
    page.locator('tr[data-node="large"]').get_by_text("61 of 60").wait_for()
    page.locator("#texts").scroll_into_view_if_needed()
    page.locator("#texts").get_by_text(told.extra_text).wait_for()


def test_a_node_that_stopped_has_its_way_back_and_old_cells(told, address, show):
    gone = {"state": "stopped", "round": 20, "back": "potluck join r/small/join.json --as small"}
    changed(told, nodes=states(told.whole, small=gone))
    told.whole.matrix["large"]["small"]["staleness"] = 11.0
    page = show(f"{address}#/run/", viewport={"width": 1200, "height": 3000})
    page.locator("#nodes").get_by_text("To bring back small:").wait_for()
    assert page.locator("#nodes code").inner_text() == gone["back"]
    old = page.locator("td.old")
    old.first.wait_for()
    places = old.evaluate_all("all => all.map((td) => [td.dataset.down, td.dataset.across].join())")
    assert places == ["0,1", "1,0", "1,1", "2,1"]
    assert "more than 10 rounds ago" in old.first.get_attribute("aria-label")
