"""The pages of the site, laid out: docs/ as it is, and all that it links to outside itself.

The home page is README.md. docs/ is read on GitHub too, where ``../recipes/README.md`` and
``../src/potluck/config/run.py`` are links that work. A site has one folder. So each such file
becomes a page below ``source/``: Markdown as it is, a text as a block of code, a folder as the list
of its files. Copies and no links to a repository: the site is then whole without a network, and
shows the files of its own version.

A comment ``<!-- ::: potluck.config.load -->`` becomes the line that shows a docstring: elsewhere
it stays unseen.
"""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from site_lists import relisted

LINK_OR_CODE = re.compile(
    r"^ *(?P<fence>```+|~~~+).*?^ *(?P=fence)|(?P<tick>`+)(?!`).*?(?<!`)(?P=tick)(?!`)"
    r"|(?<=\]\()(?P<path>[^)\s#]+)(?P<rest>(#[^)\s]*)?(\s+\"[^\"]*\")?)(?=\))",
    re.MULTILINE | re.DOTALL,
)
OUTSIDE = re.compile(r"[a-z][a-z0-9+.-]*:|/")
NAMED = re.compile(r"\[([\w-]+\.md)\]\((?P<path>[^)\s#]*\b\1)(?:#(?P<part>[^)\s]+))?\)")
"""A link whose text is the file's name, as it is good on GitHub; a site has titles."""
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
DOCSTRING = re.compile(r"^<!-- (::: [\w.]+.*?)\s*-->$", re.MULTILINE | re.DOTALL)
LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json", ".sh": "bash", ".yaml": "yaml"}
COPIED = {".png", ".svg", ".jpg", ".gif", ".webp", ".css"}
HOME = Path("README.md")
"""The site's home page, too: one source of both."""
HIDDEN = "---\nsearch:\n  exclude: true\n---\n"
"""Head of a page that the search leaves out: of a code word it would find mostly source."""


class SiteError(Exception):
    """A page of the site that cannot be made; the message names the link and the file."""


def linked(text: str, change: Callable[[str], str]) -> str:
    """Return Markdown with the path of each link changed, but for those in code.

    >>> linked("[a](b.md#c), `[a](b.md)` and [d](https://e)", str.upper)
    '[a](B.MD#c), `[a](b.md)` and [d](https://e)'
    """

    def replaced(found: re.Match[str]) -> str:
        if found["path"] is None or OUTSIDE.match(found["path"]):
            return found[0]
        return change(found["path"]) + found["rest"]

    return LINK_OR_CODE.sub(replaced, text)


def titled(text: str, read: Callable[[str], str]) -> str:
    """Return Markdown in which links have the titles of their pages, or sections, as text.

    >>> titled("[b.md](../b.md) and [b.md](b.md#its-end)", lambda path: "# Its page\\n## Its end")
    '[Its page](../b.md) and [Its end](b.md#its-end)'
    """

    def replaced(found: re.Match[str]) -> str:
        heads = HEADING.findall(read(found["path"]))
        slugs = {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-"): head for head in heads}
        title = slugs.get(found["part"] or "", heads[0].partition(":")[0])
        return found[0].replace(f"[{found[1]}]", f"[{title}]", 1)

    return NAMED.sub(replaced, text)


class Pages:
    """The pages that are laid out in ``folder``."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._root, self._folder = root.resolve(), folder
        self._made: set[Path] = set()

    def add(self, file: Path) -> Path:
        """Lay out a file of the tree and all it links to; return its path in the folder."""
        place = self._place(file)
        if place in self._made:
            return place
        self._made.add(place)
        target = self._folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix in COPIED:
            shutil.copyfile(file, target)
        else:
            target.write_text(self._page(file, place), encoding="utf-8")
        return place

    def _place(self, file: Path) -> Path:
        path = file.relative_to(self._root)
        if path == HOME:
            return Path("index.md")
        if path.parts[0] == "docs":
            return path.relative_to("docs")
        path = "source" / path
        if file.is_dir():
            return path / "index.md"
        return path if file.suffix in COPIED | {".md"} else path.with_name(path.name + ".md")

    def _page(self, file: Path, place: Path) -> str:
        name = file.relative_to(self._root)
        if file.is_dir():
            inner = sorted(each.name + "/" * each.is_dir() for each in file.iterdir())
            listed = "\n".join(each for each in inner if not each.startswith((".", "__pycache__")))
            return f"{HIDDEN}# {name}/\n\n```text\n{listed}\n```\n"
        text = file.read_text(encoding="utf-8")
        if file.suffix != ".md":
            return f"{HIDDEN}# {name}\n\n````{LANGUAGES.get(file.suffix, 'text')}\n{text}\n````\n"

        def change(path: str) -> str:
            target = (file.parent / path).resolve()
            if not (target.is_relative_to(self._root) and target.exists()):
                raise SiteError(f"{name} links to {path}, which is no file of the repository")
            if target.is_dir() and (target / "README.md").exists():
                target /= "README.md"
            return os.path.relpath(self.add(target), place.parent)

        def read(path: str) -> str:
            return (file.parent / path).read_text(encoding="utf-8")

        text = linked(titled(text, read), change)
        return DOCSTRING.sub(r"\1\n", relisted(text))


def lay_out(root: Path, folder: Path, nav: list[str]) -> None:
    """Lay out every page of docs/, and those of ``nav`` that are outside of it."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = Pages(root, folder)
    for file in sorted((root / "docs").rglob("*")):
        if file.suffix in COPIED | {".md"}:
            pages.add(file.resolve())
    for path in nav:
        outside = str(HOME) if path == "index.md" else path.removeprefix("source/")
        file = root / ("docs" if outside == path else "") / outside
        if not file.is_file():
            raise SiteError(f"zensical.toml names {path} in nav, but there is no {file}")
        pages.add(file.resolve())
