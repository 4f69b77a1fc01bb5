"""The pictures of docs/watch.md: a real run of four nodes and a short demo, in a real browser.

    python scripts/page_pictures.py docs/watch

Needs Chromium, and three minutes of two cores. Numbers in the pictures are those of this run.
"""

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import sync_playwright

POTLUCK = [sys.executable, "-m", "potluck"]
MODELS = {"large": "large", "small": "small", "columns": "small", "terse": "terse"}
RATES = {"columns": 4e-4}
RUN, ROUNDS, LIVE = "garden", 60, 8
"""Name of the run, its rounds, and the round in which the pictures of it are made."""


def recipe(folder):
    """F-TIS: its authors tell log-probabilities, so tokens have the colours of log-ratios."""
    node = "\n".join(
        f'{name} = {{model = "builtin:digits-{model}", learning_rate = {RATES.get(name, 1e-4)}}}'
        for name, model in MODELS.items()
    )
    path = folder / f"{RUN}.toml"
    path.write_text(
        f'name = "{RUN}"\nrounds = {ROUNDS}\nthreads = 1\nplan = "horizontal"\n'
        'task = {name = "digits"}\n'
        "problems_per_round = 24\ngroup_size = 16\ndeadline_s = 20\n"
        "sampling = {max_new_tokens = 48, max_total_tokens = 96}\n"
        'objective = {method = "f-tis"}\n'
        "evaluation = {every = 3, problems = 100, out_of_distribution = 0}\n"
        f"[node]\n{node}\n"
    )
    return path


@contextmanager
def told(command, **rest):
    """The address in the first line of a process that has one."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, process_group=0, **rest)
    try:
        for line in process.stdout:
            if "watch it:" in line:
                yield line.split("watch it:")[1].split()[0]
                break
        else:
            sys.exit(f"{command} told no address")
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def rounds_done(run, name):
    path = run / name / "metrics.jsonl"
    return len(path.read_bytes().splitlines()) if path.exists() else 0


def wait_for(holds, what, longest_s=600):
    end_s = time.monotonic() + longest_s
    while not holds():
        if time.monotonic() > end_s:
            sys.exit(f"after {longest_s} s: not {what}")
        time.sleep(0.3)


def go_to(page, part):
    page.get_by_role("link", name=part).first.click()
    page.wait_for_timeout(1500)


def main():
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as place, sync_playwright() as play:
        folder = Path(place)
        run = folder / "runs" / RUN
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])

        def open_page(address, width=1280, height=1000, **options):
            view = {"width": width, "height": height}
            context = browser.new_context(viewport=view, device_scale_factor=1.5, **options)
            page = context.new_page()
            page.goto(address)
            page.wait_for_timeout(1500)
            return page

        # From there: the page shows the folder as it was named.
        command = [*POTLUCK, "run", recipe(folder).name, "--out", f"runs/{RUN}", "--web"]
        rest = {"cwd": folder, "stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
        with told(command, **rest) as address:
            page = open_page(address, height=1360)
            wait_for(lambda: rounds_done(run, "terse") >= LIVE, "so many rounds")
            page.wait_for_timeout(1500)
            page.screenshot(path=out / "run.png")
            page.set_viewport_size({"width": 1280, "height": 1000})
            go_to(page, "Who learns what from whom")
            page.get_by_role("gridcell").nth(3).click()
            page.wait_for_timeout(2000)
            go_to(page, "Who learns what from whom")
            page.screenshot(path=out / "matrix.png")
            go_to(page, "Completions")
            # Tokens are recorded of a sample: the picture is of one that two models see otherwise.
            coloured = page.locator("li.text:has(.more2, .more3, .less2, .less3)")
            while not coloured.count():
                page.get_by_role("button", name="Show more").click()
            coloured.first.evaluate("line => line.scrollIntoView({ block: 'center' })")
            page.wait_for_timeout(500)
            page.screenshot(path=out / "completions.png")
            open_page(address, 390, 1400, color_scheme="dark").screenshot(path=out / "phone.png")
        words = ["demo", "--seeds", "1", "--rounds", "20", "--out", str(folder / "demo")]
        subprocess.run([*POTLUCK, *words], check=True)
        report = (folder / "demo" / "report.html").as_uri()
        open_page(report, height=1120).screenshot(path=out / "kept.png")
        browser.close()


if __name__ == "__main__":
    main()
