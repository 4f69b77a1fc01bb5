"""The site: lay out its pages, build them strictly, check every link of what was built.

make site                                   # into build/site; needs no network
python -m http.server --directory build/site
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from site_check import faults
from site_pages import SiteError, lay_out

ROOT = Path(__file__).parents[1]
EXPECTED = re.compile(r"Build started|Build finished in .*|No issues found|\s*")
"""Lines of a build without a warning."""
STRICT = "Aborted because --strict flag is set"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def pages_of(nav: Any) -> Iterator[str]:
    """Yield the files of a navigation, in its order.

    >>> list(pages_of([{"Start": ["index.md", {"Install": "install.md"}]}]))
    ['index.md', 'install.md']
    """
    if isinstance(nav, str):
        yield nav
        return
    for inner in nav.values() if isinstance(nav, dict) else nav:
        yield from pages_of(inner)


def warnings_in(output: str) -> list[str]:
    """Return what a build said beyond that it is done: the reader of docstrings only warns.

    >>> warnings_in("Build started\\ngriffe: x.py:3: No type\\nBuild finished in 2.44s\\n")
    ['griffe: x.py:3: No type']
    """
    said = COLOUR.sub("", output)
    if STRICT in said:  # the places stand above; where the builder raised that is of no use
        said = said.partition("Traceback")[0]
    return [line for line in said.splitlines() if not EXPECTED.fullmatch(line)]


def main() -> int:
    settings = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
    try:
        lay_out(ROOT, ROOT / settings["docs_dir"], list(pages_of(settings["nav"])))
    except SiteError as error:
        print(error, file=sys.stderr)
        return 1
    site = ROOT / settings["site_dir"]
    shutil.rmtree(site, ignore_errors=True)  # else a page that is no more would stay
    # A module of this folder is an extension of its Markdown.
    build = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    built = subprocess.run(
        build, cwd=ROOT, env=os.environ | {"PYTHONPATH": "scripts"}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    print(*(found := warnings_in(built.stdout)), sep="\n", end="\n" if found else "")
    if built.returncode:
        return built.returncode
    print(*(dead := list(faults(site))), sep="\n", end="\n" if dead else "")
    print(f"{len(list(site.rglob('*.html')))} pages, {len(found) + len(dead)} faults")
    return 1 if found or dead else 0


if __name__ == "__main__":
    sys.exit(main())
