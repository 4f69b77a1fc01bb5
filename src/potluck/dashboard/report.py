"""The demo's result as one HTML file that needs nothing else: no network, no script.

Whatever a model wrote, or a summary holds, is escaped here; the page's own policy
forbids scripts and every outside address as well, should an escape be forgotten.
"""

import base64
import re
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any

from potluck.dashboard.comparison import Comparison, compare, label, verdict
from potluck.dashboard.report_page import PAGE
from potluck.dashboard.text import decimal, percent, printable

COUNTS = {1: "one model", 2: "two different models", 3: "three different models"}


def write_report(summary: Mapping[str, Any], picture: Path, path: Path) -> None:
    """Writes the report of a demo whose picture has been drawn.

    Raises:
        ValueError: the summary does not hold together.
    """
    comparison = compare(summary)
    count = len(comparison.curves)
    page = PAGE.format(
        count=COUNTS.get(count, f"{count} different models"),
        compared=_compared(comparison, summary),
        verdict="\n".join(f"<p>{_words(sentence)}</p>" for sentence in verdict(summary)),
        picture=base64.b64encode(picture.read_bytes()).decode("ascii"),
        alt=_words(_alt(comparison, verdict(summary)), code=False),
        table=_table(comparison, summary),
        samples=_samples(summary.get("samples") or {}),
    )
    path.write_text(page, encoding="utf-8")


def _compared(comparison: Comparison, summary: Mapping[str, Any]) -> str:
    rounds, seconds = comparison.eval_rounds[-1], summary.get("seconds")
    took = "" if seconds is None else f"; all of it took {float(seconds):.0f} seconds"
    unit = "round" if rounds == 1 else "rounds"
    return f"{rounds} {unit} of training under each method{took}"


def _alt(comparison: Comparison, sentences: Iterable[str]) -> str:
    nodes = ", ".join(comparison.curves)
    return (
        f"Line chart of accuracy over the rounds of training, one panel each for {nodes}, "
        f"one curve for each method. {' '.join(sentences)}"
    )


def _table(comparison: Comparison, summary: Mapping[str, Any]) -> str:
    """A row per node and method; a column of an extra only where the summary has it."""
    extras = {
        "other problems, end": summary.get("out_of_distribution"),
        "answers filtered": summary.get("filtered_share"),
    }
    extras = {title: values for title, values in extras.items() if values}
    head = "".join(
        f'<th scope="col">{title}</th>' for title in ("model", "method", "start", "end", *extras)
    )
    bodies = []
    for node in comparison.curves:
        methods = [method for method in comparison.methods if method in comparison.curves[node]]
        rows = []
        for at, method in enumerate(methods):
            curve = comparison.curves[node][method]
            name = f'<th scope="rowgroup" rowspan="{len(methods)}">{_words(node)}</th>'
            shown = [decimal(curve[0], 2), f"<strong>{decimal(curve[-1], 2)}</strong>"]
            if extras:
                ood, filtered = (
                    (summary.get(key) or {}).get(node, {}).get(method)
                    for key in ("out_of_distribution", "filtered_share")
                )
                formatted = {
                    "other problems, end": decimal(ood, 2),
                    "answers filtered": percent(filtered),
                }
                shown += [formatted[title] for title in extras]
            cells = "".join(f"<td>{value}</td>" for value in shown)
            row = f'<th scope="row">{_words(label(method))}</th>{cells}'
            rows.append(f"<tr>{name if at == 0 else ''}{row}</tr>")
        bodies.append(f"<tbody>{''.join(rows)}</tbody>")
    return f"<table><thead><tr>{head}</tr></thead>{''.join(bodies)}</table>"


def _samples(samples: Mapping[str, Iterable[Mapping[str, Any]]]) -> str:
    if not samples:
        return ""
    parts = ["<h2>What the models wrote</h2>"]
    for node, written in samples.items():
        parts.append(f"<h3>{_words(node)}</h3>")
        for sample in written:
            right = float(sample["reward"]) > 0
            mark = "right" if right else "wrong"
            parts.append(
                f'<figure class="sample {mark}"><figcaption>{_words(str(sample["question"]))} '
                f"<span>{mark}</span></figcaption>"
                f"<pre>{_words(str(sample['text']), 600, code=False)}</pre></figure>"
            )
    return "\n".join(parts)


def _words(text: str, limit: int = 400, *, code: bool = True) -> str:
    """``text`` made safe for HTML; what stands between backticks is set as code."""
    safe = escape(printable(text, limit))
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", safe) if code else safe
