"""The page in a real browser: live, from strangers, of many nodes, and kept in a file."""

from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from potluck.show.web.page import kept_page
from potluck.show.web.views import CurvesView
from show.terminal.run_folders import make_run, metrics
from show.web.made_views import (
    HOSTILE,
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

RED = {"light": "rgb(179, 38, 30)", "dark": "rgb(255, 143, 132)"}
REPOSITORY = Path(__file__).parents[4]


def row(page, node):
    return page.locator(f'tr[data-node="{node}"]')


def colour(locator):
    return locator.evaluate("node => getComputedStyle(node).color")


# ------------------------------------------------------------------ live


def test_a_change_is_shown_without_a_reload(told, address, show):
    page = show(f"{address}#/run//curves")
    row(page, "large").get_by_text("60 of 60").wait_for()
    page.evaluate("window.stayed = true")
    more = {
        name: CurvesView(first=60, columns={"round": [60.0], "own_reward_mean": [0.123]})
        for name in ("large", "small", "wide")
    }
    told.change(
        curves=more,
        nodes=states(told.whole, large={"round": 61, "phase": "evaluate"}),
        events=[*made_events(("large", "small"), 60), *made_events(("late-comer", "small"), 61)],
    )
    row(page, "large").get_by_text("being evaluated").wait_for()
    page.locator("#curves details summary").click()
    last = page.locator("#curves details tbody tr").last
    last.get_by_text("12%").first.wait_for()
    assert last.locator("th").inner_text() == "61"
    page.locator("#events").scroll_into_view_if_needed()
    page.locator("#events").get_by_text("late-comer", exact=True).first.wait_for()
    assert page.evaluate("window.stayed")


def test_a_node_that_falls_silent_turns_red_is_said_aloud_and_comes_back(told, address, show):
    page = show(f"{address}#/run/")
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


def test_a_lost_connection_is_said_and_found_again(told, show):
    with serving(told) as address:
        page = show(f"{address}#/run/", expects_errors=True)
        page.get_by_text("live", exact=True).wait_for()
        port = urlsplit(address).port
    page.get_by_text("Connection lost, trying again").wait_for()
    again = Told(made_run(("large",), rounds=77))
    with serving(again, port):
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
    told.whole = msgspec.structs.replace(told.whole, nodes=states(told.whole, **gone))
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
    page.locator('td[data-down="1"][data-across="0"]').click()
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


def test_64_nodes_and_500_rounds_are_drawn_as_what_can_be_seen(told, address, show):
    told.whole = made_run([f"node-{place:02}" for place in range(64)], 500)
    page = show(f"{address}#/run//curves", viewport={"width": 1000, "height": 900})
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
    cell = page.locator('td[data-down="3"][data-across="7"]')
    assert cell.inner_text() == ""
    assert "node-07 learns from node-03: Taken" in cell.get_attribute("aria-label")


def test_a_long_curve_keeps_its_peaks(told, address, show):
    rounds = 20_000
    reward = [0.5] * rounds
    reward[12_345] = 0.97
    columns = {"round": [float(at) for at in range(rounds)], "own_reward_mean": reward}
    told.whole = msgspec.structs.replace(
        made_run(("large",)), curves={"large": CurvesView(first=0, columns=columns)}, evaluations={}
    )
    page = show(f"{address}#/run//curves")
    page.get_by_role("combobox", name="Smoothing", exact=True).select_option(label="none")
    path = page.locator("#curves path.curve[data-rows]")
    path.wait_for(state="attached")
    page.locator("#curves path.raw").wait_for(state="detached")
    assert path.get_attribute("data-rows") == str(rounds)
    assert int(path.get_attribute("data-points")) < 5_000
    heights = path.evaluate(
        "path => path.getAttribute('d').match(/[ML][^ML]+/g).map((at) => Number(at.split(' ')[1]))"
    )
    assert len({height for height in heights if height < min(heights) + 1}) == 1
    assert max(heights) - min(heights) > 80


# ------------------------------------------------------------------ the kept file


def test_a_kept_file_opens_offline_and_asks_for_nothing(tmp_path, show):
    file = tmp_path / "kept.html"
    file.write_text(kept_page(made_kept()), encoding="utf-8")
    page = show(file.as_uri(), offline=True, viewport={"width": 1200, "height": 9000})
    page.get_by_role("heading", name="Does it help to learn from each other?").wait_for()
    page.get_by_role("heading", name="small: own sampled reward", exact=True).wait_for()
    page.locator("#texts").get_by_text("Round 60").first.wait_for()
    heard = page.locator('tr[data-node="large"] td[data-label="Heard"]')
    assert heard.inner_text().count("/") == 2  # a date: "ago" would be of the day of writing
    page.get_by_role("combobox", name="Run", exact=True).select_option(label="together (LWS)")
    page.get_by_role("heading", level=2, name="together (LWS)").wait_for()
    page.locator('td[data-down="1"][data-across="0"]').click()
    page.get_by_role("heading", name="Effective sample size", exact=True).wait_for()
    assert {urlsplit(url).scheme for url in page.asked} <= {"file", "data"}
    assert [url for url in page.asked if url.startswith("file")] == [file.as_uri()]


# ------------------------------------------------------------------ a real server, a real run


def test_a_run_of_two_nodes_is_followed_to_its_end_without_a_reload(tmp_path, show):
    small = {"rounds": 3, "problems_per_round": 2, "group_size": 2}
    small |= {"evaluation.problems": 2, "evaluation.out_of_distribution": 0}
    changes = [word for key, value in small.items() for word in ("--set", f"{key}={value}")]
    recipe = REPOSITORY / "recipes" / "digits-size.toml"
    words = [recipe, *changes, "--one-process", "--out", tmp_path / "run"]
    words += ["--web-at", "127.0.0.1:0"]
    with watching(*words, command="run") as (address, process):
        page = show(address, expects_errors=True)
        page.evaluate("window.stayed = true")
        for node in ("large", "small"):
            row(page, node).wait_for(timeout=300_000)
        page.get_by_text("over", exact=True).wait_for(timeout=300_000)
        assert process.wait(120) == 0
    assert page.evaluate("window.stayed")
    assert row(page, "small").get_by_text("3 of 3").count() == 1
    assert page.locator(".matrix td[data-down]").count() == 4
    chart = page.locator("#curves path.curve[data-rows]")
    page.locator("#curves").scroll_into_view_if_needed()
    chart.nth(1).wait_for(state="attached")
    assert chart.evaluate_all("paths => paths.map((path) => path.dataset.rows)") == ["3", "3"]


def test_a_browser_without_the_token_sees_nothing_and_with_it_everything(tmp_path, show):
    run = make_run(tmp_path / "run", "large", rounds=[metrics(0)])
    with watching(run, "--web-at", "127.0.0.1:0", "--web-token") as (address, _):
        bare = address.split("?")[0]
        for wrong in (bare, f"{bare}?token=wrong"):
            page = show(wrong, expects_errors=True)
            assert page.locator("main").count() == 0
            assert "token" in page.locator("body").inner_text()
        page = show(address)
        row(page, "large").wait_for()
        assert "token" not in page.url
        page.goto(bare)  # the cookie is enough now
        row(page, "large").wait_for()
        assert "token" not in page.evaluate("document.cookie")
        page.close()
