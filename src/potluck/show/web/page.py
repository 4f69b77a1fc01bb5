"""The page as one HTML text: its style and its script inside, allowed by their hashes. The scripts
are joined in the order of their names into one module; before the last one stand those of other
feeds. A server sends the policy as a header as well; a page that is kept in a file has it inside,
together with its data, and may connect to nothing. What does not fit into a file is left out, the
least needed first, and that is said.
"""

import base64
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from potluck.reports import AuthorReport, EvaluationReport, RoundReport, Stat, stats_of
from potluck.reports.runs import read_recipe
from potluck.reports.statistics import numbers_on_page
from potluck.show.web.folder import WatchedRun, read_pairs
from potluck.show.web.views import Columns, ExperimentEntry, Kept, KeptRun, KeptTable
from potluck.types import PotluckError

POLICY = (
    "default-src 'none'; connect-src {connect}; img-src data:; style-src {style}; "
    "script-src {script}; base-uri 'none'; form-action 'none'"
)
FRAMES = "; frame-ancestors 'none'"
"""Part of the policy that counts in a header alone."""
MOST_BYTES = 20_000_000
POINTS = 200
"""Rounds of a pair or a node that stay where all are too many."""
STEERING = re.compile("[\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
"""Characters that end lines, turn the reading order or hide, in whatever shows the file as text."""


class ExperimentFeed(Protocol):
    """Module that shows folders without runs: an entry point of the group ``potluck.feeds``."""

    def script(self) -> str:
        """Return JavaScript that adds ``pages.experiment``."""

    def is_here(self, folder: Path) -> bool:
        """Tell if it shows this folder."""

    def entries(self, folder: Path, name: str) -> list[ExperimentEntry]:
        """Return lines of the start page; ids begin with ``name``, that of the folder."""

    def view(self, folder: Path, name: str, experiment: str) -> object | None:
        """Return what the page asks for by the id of an entry, for JSON; None: it is no entry."""


def experiment_feeds() -> list[ExperimentFeed]:
    """Load the installed feeds; raise PotluckError for a broken one."""
    found = []
    for entry in entry_points(group="potluck.feeds"):
        try:
            found.append(entry.load())
        except Exception as error:  # of others' code
            raise PotluckError(
                f"the page's feed {entry.value} cannot be loaded ({type(error).__name__}: "
                f"{error}); install its distribution again, or remove it"
            ) from None
    return found


class Page(NamedTuple):
    html: str
    policy: str


@cache
def parts() -> tuple[str, str, list[str]]:
    """Read the page's files: its HTML, its style, its scripts."""
    folder = files("potluck.show.web") / "page"
    scripts = sorted((f for f in folder.iterdir() if f.name.endswith(".js")), key=lambda f: f.name)
    html, style, *texts = (
        f.read_text("utf-8") for f in (folder / "page.html", folder / "page.css", *scripts)
    )
    return html, style, texts


@cache
def live_page() -> Page:
    scripts = [feed.script() for feed in experiment_feeds()]
    html, policy = _assemble("", connect="'self'", scripts=scripts)
    return Page(html, policy + FRAMES)


def kept_page(kept: Kept) -> str:
    return _assemble(_element("kept", kept), connect="'none'").html


def _element(id: str, data: object) -> str:
    """Return data as an element that the page's script reads."""
    # In a script element only "</script" and "<!--" end or change anything: both begin with "<".
    text = msgspec.json.encode(data).decode().replace("<", "\\u003c")
    text = STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    return f'<script type="application/json" id="{id}">{text}</script>\n'


def statistics() -> dict[str, dict[str, dict[str, str]]]:
    """Return what the page knows of each number that it shows: of authors, and of curves."""
    since = Stat("Rounds since the last message", "count", help="0: one came in the newest round.")
    curves = stats_of(RoundReport), stats_of(EvaluationReport)
    authors = numbers_on_page(stats_of(AuthorReport), {"staleness": since})
    return {"authors": authors, "curves": numbers_on_page(*curves)}


def _assemble(data: str, *, connect: str, scripts: Sequence[str] = ()) -> Page:
    html, style, (*own, last) = parts()
    script = "\n".join([*own, *scripts, last])
    policy = POLICY.format(connect=connect, style=_hash(style), script=_hash(script))
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
    inside = {
        "style": f"{meta}<style>{style}</style>",
        "kept": _element("statistics", statistics()) + data,
        "script": f'<script type="module">{script}</script>',
    }
    # One pass: data and script may have a marker in them.
    whole = re.sub("<!-- (style|kept|script) -->", lambda found: inside[found[1]], html)
    return Page(whole, policy)


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def keep(
    runs: Mapping[str, Path],
    *,
    title: str,
    lead: Sequence[str] = (),
    table: KeptTable | None = None,
    labels: Mapping[str, str] | None = None,
) -> tuple[Kept, list[str]]:
    """Return the data of a kept page, and what was left out; RunReadError for no run."""
    kept = Kept(
        title=title,
        lead=list(lead),
        table=table,
        labels=dict(labels or {}),
        runs={run: _keep_run(folder) for run, folder in runs.items()},
    )
    left_out = ["completions of other rounds than the newest"]
    steps: dict[str, Callable[[KeptRun], KeptRun]] = {
        f"rounds of all pairs and curves beyond {POINTS}": _thin,
        "all completions": lambda run: replace(run, texts=[]),
        "all pairs": lambda run: replace(run, pairs=[]),
    }
    for what, step in steps.items():
        if len(msgspec.json.encode(kept)) <= MOST_BYTES:
            break
        fewer = {name: step(run) for name, run in kept.runs.items()}
        left_out += [what] if fewer != kept.runs else []
        kept = replace(kept, runs=fewer)
    return kept, left_out


def _keep_run(folder: Path) -> KeptRun:
    read_recipe(folder)  # it tells what is wrong
    feed = WatchedRun(folder)
    feed.look()
    view = feed.view()
    here = [*(view.curves or ())]
    newest = map(feed.texts, here)
    return KeptRun(
        view=view,
        pairs=[pair for node in here for pair in read_pairs(folder / node).values()],
        texts=[replace(texts, rounds=texts.rounds[-1:]) for texts in newest],
    )


def _thinned(columns: Columns) -> Columns:
    """Return about POINTS rows, evenly spread, the first and the last among them."""
    count = len(columns["round"])
    if count <= POINTS:
        return columns
    rows = [round(at * (count - 1) / (POINTS - 1)) for at in range(POINTS)]
    return {name: [column[row] for row in rows] for name, column in columns.items()}


def _thin(run: KeptRun) -> KeptRun:
    pairs = [replace(pair, columns=_thinned(pair.columns)) for pair in run.pairs]
    curves = (run.view.curves or {}).items()
    thin = {name: replace(each, columns=_thinned(each.columns)) for name, each in curves}
    return replace(run, pairs=pairs, view=replace(run.view, curves=thin))
