"""The page in a real browser: as it changes, from strangers, of many nodes, and kept in a file."""

import re
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from potluck.show.web.page import kept_page
from potluck.show.web.views import CurvesView
from show.web.made_views import (
    HOSTILE,
    NOW_S,
    SCRIPT,
    made_control,
    made_episode,
    made_events,
    made_kept,
    made_run,
    made_start,
    states,
)
from show.web.stand_in_page_server import Told, serving
from show.web.watching import watching

pytestmark = pytest.mark.page

COMMAND = "potluck run r/recipe.json --out r --resume --control half"
RED = {"light": "rgb(179, 38, 30)", "dark": "rgb(255, 143, 132)"}
REPOSITORY = Path(__file__).parents[4]
HEIGHTS = (
    "path => path.getAttribute('d').match(/[ML][^ML]+/g).map((at) => Number(at.split(' ')[1]))"
)


def row(page, node):
    return page.locator(f'tr[data-node="{node}"]')


def cell(page, down, across):
    return page.locator(f'td[data-down="{down}"][data-across="{across}"]')


def colour(locator):
    return locator.evaluate("node => getComputedStyle(node).color")


def changed(told, **changes):
    told.whole = msgspec.structs.replace(told.whole, **changes)


# ------------------------------------------------------------------ live


def test_a_change_is_shown_without_a_reload(told, address, show):
    changed(told, control_command=COMMAND)
    page = show(f"{address}#/run/", viewport={"width": 1200, "height": 300})
    row(page, "large").get_by_text("60 of 60").wait_for()
    page.evaluate("window.stayed = true")
    answer, texts = page.locator("#answer"), page.locator("#texts")
    assert answer.locator("code").inner_text() == COMMAND
    assert "When the run is done" in answer.inner_text()
    texts.locator(".text").first.wait_for(state="attached")  # drawn ahead
    told.extra_text = "of the round that came later"
    columns = {"round": [60.0], "own_reward_mean": [0.123]}
    told.change(
        curves={name: CurvesView(first=60, columns=columns) for name in told.whole.curves},
        nodes=states(told.whole, large={"round": 61, "phase": "evaluate"}),
        events=[*made_events(("large", "small"), 60), *made_events(("late-comer", "small"), 61)],
    )
    row(page, "large").get_by_text("being evaluated").wait_for()
    page.locator("#curves details summary").click()
    last = page.locator("#curves details tbody tr").last
    last.get_by_text("12%").first.wait_for()
    assert last.locator("th").inner_text() == "61"
    page.mouse.move(1, 1)  # over texts it would be a reader, for whom they stay
    texts.scroll_into_view_if_needed()
    texts.get_by_text(told.extra_text).wait_for()
    page.locator("#events").scroll_into_view_if_needed()
    page.locator("#events").get_by_text("late-comer", exact=True).first.wait_for()
    told.change(nodes=told.whole.nodes[:1])
    answer.get_by_text("There is one node: it learns from nobody else.").wait_for()
    assert page.evaluate("window.stayed")


def test_the_first_seconds_say_who_is_waited_for_and_nobody_tells_seconds(told, address, show):
    waits = {"round": 0, "phase": "wait", "done": 1, "total": 2, "begins_s": NOW_S + 41}
    away = {"round": 0, "state": "awaited", "why": "nothing was heard of it yet"}
    begun = states(told.whole, large=waits, small=waits, wide=away)
    changed(told, nodes=begun, curves={}, evaluations={}, matrix={}, events=[])
    page = show(f"{address}#/run/")
    page.get_by_text("3 nodes: 2 waiting to begin, 1 not here yet").wait_for()
    why = row(page, "large").locator(".why").first
    assert re.fullmatch(r"waiting for wide \(1 of 2 here\), \d+ s left", why.inner_text())
    assert "learns from nobody else" not in page.locator("main").inner_text()
    met = {"begins_s": None, "round": 1}
    columns = {"round": [0.0], "own_reward_mean": [0.5]}
    told.change(
        nodes=states(told.whole, large=met, small=met),
        curves={"large": CurvesView(first=0, columns=columns)},
    )
    page.get_by_text("3 nodes: 2 training, 1 not here yet").wait_for()
    assert why.inner_text() == ""
    told_of = row(page, "large").locator
    told_of('td[data-label="Reward, last 5"]').get_by_text("50%").wait_for()
    assert told_of('td[data-label="Round"]').inner_text() == "1 of 60"
    assert told_of("td[data-label=Waited]").inner_text() == "\u2013"


def test_a_node_that_falls_silent_turns_red_and_a_lost_connection_is_found_again(told, show):
    with serving(told) as address:
        page = show(f"{address}#/run/", expects_errors=True)
        state = row(page, "small").locator(".state")
        state.get_by_text("training").wait_for()
        assert colour(state) not in RED.values()
        silent = {"state": "silent", "why": "nothing was heard for 5 s"}
        told.change(nodes=states(told.whole, small=silent))
        state.get_by_text("silent").wait_for()
        for scheme, red in RED.items():
            page.emulate_media(color_scheme=scheme)
            assert colour(state) == red
        said = page.locator("#say")
        assert said.inner_text() == "small is silent: nothing was heard for 5 s"
        told.change(nodes=states(told.whole))
        state.get_by_text("training").wait_for()
        assert colour(state) not in RED.values()
        assert said.inner_text() == "small is training"
        page.get_by_text("live", exact=True).wait_for()
        port = urlsplit(address).port
    page.get_by_text("Connection lost, trying again").wait_for()
    with serving(Told(made_run(("large",), rounds=77)), port):
        row(page, "large").get_by_text("77 of 77").wait_for()
        page.get_by_text("live", exact=True).wait_for()
        learners = page.get_by_role("combobox", name="Learner", exact=True, include_hidden=True)
        assert learners.locator("option").all_text_contents() == ["large"]  # nothing of before


# ------------------------------------------------------------------ strangers


def test_names_and_texts_of_strangers_are_text_and_nothing_runs(told, address, show):
    told.whole = msgspec.structs.replace(
        made_run((HOSTILE, SCRIPT, "small")),
        name=HOSTILE,
        events=made_events((HOSTILE, SCRIPT), 60),
        controls=[made_control(HOSTILE, (0.1, 0.0, 0.2)), made_control(SCRIPT)],
    )
    gone = {SCRIPT: {"state": "stopped", "back": f"potluck join {HOSTILE}"}}
    changed(told, nodes=states(told.whole, **gone))
    told.shown = msgspec.structs.replace(
        made_start(),
        place=HOSTILE,
        runs=[msgspec.structs.replace(made_start().runs[0], name=SCRIPT)],
    )
    told.extra_text = SCRIPT
    told.episodes = [made_episode(59, at, extra=HOSTILE) for at in (0, 1)]
    page = show(f"{address}#/run/", viewport={"width": 1200, "height": 6000})
    page.locator(".text pre").get_by_text(SCRIPT).first.wait_for()
    assert page.locator(".turns").get_by_text(HOSTILE).count() == 2
    cell(page, 1, 0).click()
    page.get_by_role("heading", name="Effective sample size", exact=True).wait_for()
    assert page.locator("h1").inner_text() == HOSTILE
    assert page.locator("#answer tbody th").all_inner_texts() == [HOSTILE]
    assert page.locator("#nodes code").inner_text() == f"potluck join {HOSTILE}"
    assert page.locator(".nodes th b").all_inner_texts() == [HOSTILE, SCRIPT, "small"]
    page.goto(f"{address}#/")
    page.get_by_role("link", name=SCRIPT).wait_for()
    assert page.locator("h1").inner_text() == f"Runs in {HOSTILE}"
    assert page.locator("img").count() == 0
    assert page.locator("script:not([type='application/json'])").count() == 1
    assert page.title() != "ran"


# ------------------------------------------------------------------ size


def test_64_nodes_and_500_rounds_are_drawn_as_what_is_seen_and_printed_whole(told, address, show):
    told.whole = made_run([f"node-{place:02}" for place in range(64)], 500)
    page = show(f"{address}#/run/", viewport={"width": 1000, "height": 300})
    row(page, "node-00").wait_for()
    assert page.locator("#curves path.curve").count() == 0
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    curves = page.locator("#curves path.curve[data-points]")
    curves.nth(63).wait_for(state="attached")
    points = curves.evaluate_all("paths => paths.map((path) => Number(path.dataset.points))")
    width = page.locator("#curves .picture").evaluate("node => node.clientWidth")
    assert len(points) == 64
    assert all(0 < count <= 4 * (width + 1) for count in points)
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    session.send("Performance.enable")
    metrics = {
        one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]
    }
    assert metrics["JSHeapUsedSize"] < 150e6
    # Numbers are hidden in a matrix of this size: the reading has them.
    assert cell(page, 3, 7).inner_text() == ""
    assert "node-07 learns from node-03: Taken" in cell(page, 3, 7).get_attribute("aria-label")


def test_a_long_curve_keeps_its_peaks_and_its_table_is_short(told, address, show):
    rounds = 20_000
    reward = [0.5] * rounds
    reward[12_345] = 0.97
    columns = {"round": [float(at) for at in range(rounds)], "own_reward_mean": reward}
    told.whole = msgspec.structs.replace(
        made_run(("large",)), curves={"large": CurvesView(first=0, columns=columns)}, evaluations={}
    )
    page = show(f"{address}#/run//curves")
    path = page.locator("#curves path.curve[data-rows]")
    path.wait_for(state="attached")
    assert path.get_attribute("data-rows") == str(rounds)
    assert int(path.get_attribute("data-points")) < 5_000
    heights = page.locator("#curves path.raw").evaluate(HEIGHTS)
    assert len({height for height in heights if height < min(heights) + 1}) == 1
    assert max(heights) - min(heights) > 80
    page.locator("#curves summary").click()
    page.locator("#curves tbody tr").first.wait_for()
    assert page.locator("#curves tbody tr").count() <= 60


def test_nothing_of_eight_nodes_is_cut_and_smoothing_lags_behind_nothing(told, address, show):
    told.whole = made_run(
        ["ada", "bert", "cleo", "dora", "emil", "a-name-of-twenty-four-ch", "gus", "hana"]
    )
    step = {"round": [float(at) for at in range(60)], "own_reward_mean": [0.0] * 30 + [1.0] * 30}
    told.whole.curves["gus"] = CurvesView(first=0, columns=step)
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
    heights = page.locator('#curves path.curve[data-key="gus"]').evaluate(HEIGHTS)
    middle = (min(heights) + max(heights)) / 2
    assert next(at for at, height in enumerate(heights) if height < middle) == 30
    assert len(set(heights)) > 4  # smoothed by itself from 20 rounds on
    page.locator("#curves").get_by_role("button", name="gus").focus()
    page.locator("#curves path.lifted").wait_for(state="attached")
    assert page.locator("#curves path.lifted").get_attribute("data-key") == "gus"


# ------------------------------------------------------------------ the kept file


def test_a_kept_file_opens_offline_and_asks_for_nothing(tmp_path, show):
    file = tmp_path / "kept.html"
    file.write_text(kept_page(made_kept()), encoding="utf-8")
    page = show(file.as_uri(), offline=True, viewport={"width": 1200, "height": 9000})
    page.get_by_role("heading", name="Does it help to learn from each other?").wait_for()
    page.get_by_role("heading", name="small: own sampled reward", exact=True).wait_for()
    page.locator("#texts").get_by_text("Round 60").first.wait_for()
    page.locator("#answer").get_by_text("Only a control tells").wait_for()
    assert page.locator("#answer code").count() == 0  # elsewhere the folder has another name
    heard = page.locator('tr[data-node="large"] td[data-label="Heard"]')
    assert heard.inner_text().count("/") == 2  # a date: "ago" would be of the day of writing
    page.get_by_role("combobox", name="Run", exact=True).select_option(label="together (LWS)")
    page.get_by_role("heading", level=2, name="together (LWS)").wait_for()
    cell(page, 1, 0).click()
    page.get_by_role("heading", name="Effective sample size", exact=True).wait_for()
    assert {urlsplit(url).scheme for url in page.asked} <= {"file", "data"}
    assert [url for url in page.asked if url.startswith("file")] == [file.as_uri()]


# ------------------------------------------------------------------ a real server, a real run


def test_a_run_of_two_nodes_is_followed_to_its_end_by_a_browser_with_the_token(tmp_path, show):
    small = {"rounds": 2, "problems_per_round": 2, "group_size": 2}
    small |= {"evaluation.problems": 2, "evaluation.out_of_distribution": 0}
    changes = [word for key, value in small.items() for word in ("--set", f"{key}={value}")]
    recipe = REPOSITORY / "recipes" / "digits-size.toml"
    words = [recipe, *changes, "--one-process", "--out", tmp_path / "run"]
    words += ["--web-at", "127.0.0.1:0", "--web-token"]
    with watching(*words, command="run") as (address, process):
        page = show(address, expects_errors=True)
        page.evaluate("window.stayed = true")
        assert "token" not in page.url
        assert "token" not in page.evaluate("document.cookie")
        bare = address.split("?")[0]
        for wrong in (bare, f"{bare}?token=wrong"):
            other = show(wrong, expects_errors=True)
            assert other.locator("main").count() == 0
            assert "token" in other.locator("body").inner_text()
        for node in ("large", "small"):
            row(page, node).wait_for(timeout=300_000)
        page.get_by_text("over", exact=True).wait_for(timeout=300_000)
        assert process.wait(120) == 0
    assert page.evaluate("window.stayed")
    assert row(page, "small").get_by_text("2 of 2").count() == 1
    assert page.locator(".matrix td[data-down]").count() == 4
    chart = page.locator("#curves path.curve[data-rows]")
    page.locator("#curves").scroll_into_view_if_needed()
    chart.nth(1).wait_for(state="attached")
    assert chart.evaluate_all("paths => paths.map((path) => path.dataset.rows)") == ["2", "2"]
