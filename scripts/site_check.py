"""Faults of a built site: dead links, requests to other hosts, Markdown that was not read.

python scripts/site_check.py build/site
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""Attributes that a browser follows by itself, without a click."""
CODE = {"pre", "code", "script", "style", "math", "table"}
LEFT_OVER = re.compile(r"\]\(|\n *(?:[-*]|1\.) \S|```|\*\*|:::|\|---|\$\$|(?<!\w)\$[a-zA-Z\\]")
"""Signs of Markdown in a paragraph: a list without an empty line before it, a formula, a link."""
REMOTE_STYLE = re.compile(r"(?:url\(|@import) *[\"']?(?:https?:)?//[^)\"';]*")


@dataclass
class Page(HTMLParser):
    """What a page names and links to."""

    path: Path
    ids: set[str] = field(default_factory=set)
    links: list[tuple[str, str]] = field(default_factory=list)
    """Tag and address."""
    text: str = ""
    """Text of the article's paragraphs outside of code."""

    def __post_init__(self) -> None:
        super().__init__()
        self._open: list[str] = []
        self.feed(self.path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids |= {name for key in ("id", "name") if (name := given.get(key))}
        address = given.get(FETCHED.get(tag, "href" if tag == "a" else ""))
        if address and given.get("rel") != "canonical":
            self.links.append((tag, address))
        if tag in CODE | {"article", "p", "li"}:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            del self._open[len(self._open) - 1 - self._open[::-1].index(tag) :]

    def handle_data(self, data: str) -> None:
        inside = {*self._open}
        if "article" in inside and {"p", "li"} & inside and not CODE & inside:
            self.text += data


def faults(site: Path) -> Iterator[str]:
    """Yield a line for each fault of the built site."""
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(site)
        for tag, address in page.links:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                if tag in FETCHED and parts.scheme != "data":
                    yield f"{name}: <{tag}> asks another host: {address}"
                continue
            target = path if not parts.path else _file(site, path, unquote(parts.path))
            if not target.is_file():
                yield f"{name}: {address} leads nowhere"
            elif tag == "a" and parts.fragment and target in pages:
                yield from _anchor(name, address, unquote(parts.fragment), pages[target])
        for found in LEFT_OVER.finditer(page.text):
            line = page.text[max(0, found.start() - 40) : found.end() + 40]
            yield f"{name}: Markdown that was not read: {' '.join(line.split())!r}"
    for style in sorted(site.rglob("*.css")):
        for found in REMOTE_STYLE.finditer(style.read_text(encoding="utf-8")):
            yield f"{style.relative_to(site)}: asks another host: {found[0]}"


def _anchor(name: Path, address: str, id: str, target: Page) -> Iterator[str]:
    if id not in target.ids:
        yield f"{name}: {address} has no such heading"


def _file(site: Path, page: Path, path: str) -> Path:
    target = (site / path.lstrip("/") if path.startswith("/") else page.parent / path).resolve()
    return target / "index.html" if target.is_dir() else target


if __name__ == "__main__":
    found = list(faults(Path(sys.argv[1]).resolve()))
    print(*found, f"{len(found)} faults", sep="\n")
    sys.exit(1 if found else 0)
