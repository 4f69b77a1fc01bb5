"""Alerts on recorded rounds of eight situations: the true ones, and no other. The rounds are
those of real nodes (``record_situations.py``); a node's name is its role."""

import json
from functools import cache
from pathlib import Path

import pytest

from potluck.reports import AuthorReport, Doubts, RoundReport

GOLDEN = Path(__file__).parents[1] / "golden" / "situations.json"


@cache
def recorded():
    return json.loads(GOLDEN.read_text())


def alerts(situation, node):
    """The kind, the other node and the text of each alert of a node's rounds."""
    doubts = Doubts(node, "typicality", reads_logp=False)
    for line in recorded()[situation][node]:
        sources = {name: AuthorReport(**report) for name, report in line["sources"].items()}
        for alert in doubts.new(RoundReport(**{**line, "sources": sources})):
            yield alert.kind, alert.text


TRUE = {
    # It is late, and comes; nobody need bring it back.
    ("slow", "quick"): [],
    ("slow", "slow"): [],
    ("absent", "here"): [("silent", "nothing came of gone in 5 rounds")],
    ("absent", "there"): [("silent", "nothing came of gone in 5 rounds")],
    ("foreign", "usual"): [("unheard", "nothing is learned from terse, ")],
    ("foreign", "terse"): [("unheard", "nothing is learned from usual, ")],
    # Nothing of use came of the members, but they are there.
    ("stranger", "guest"): [
        ("unheard", "nothing is learned from one, "),
        ("unheard", "nothing is learned from two, "),
    ],
    ("stranger", "one"): [("unheard", "nothing is learned from guest, ")],
    ("stranger", "two"): [("unheard", "nothing is learned from guest, ")],
    ("killed", "stays"): [("silent", "nothing came of dies in 5 rounds")],
    # The one that has done its rounds need not be brought back.
    ("finished", "slow"): [],
    ("finished", "quick"): [],
    ("paused", "going"): [("silent", "nothing came of paused in 5 rounds")],
    ("paused", "paused"): [],
    ("refused", "own"): [("refused", "all that came of other in 5 rounds was refused")],
}


@pytest.mark.parametrize("situation, node", TRUE)
def test_the_alerts_of_a_situation_are_the_true_ones(situation, node):
    found = sorted(alerts(situation, node), key=lambda alert: alert[1])
    assert [kind for kind, _ in found] == [kind for kind, _ in TRUE[situation, node]]
    for (_, text), (_, true) in zip(found, TRUE[situation, node], strict=True):
        assert text.startswith(f"{node}: {true}")


def test_of_each_situation_each_node_is_looked_at():
    nodes = {(situation, node) for situation, by_node in recorded().items() for node in by_node}
    assert nodes - TRUE.keys() <= {("killed", "dies")}


@pytest.mark.parametrize("situation, node", [
    ("foreign", "usual"), ("foreign", "terse"), ("stranger", "guest"), ("stranger", "one"),
])  # fmt: skip
def test_another_notation_is_not_called_distrust(situation, node):
    """And no smaller exponent is advised, which would pull the notation in."""
    for _, text in alerts(situation, node):
        assert "it writes in a way that this model would not (P 0.0" in text
        assert "cannot learn from each other (docs/partners.md)" in text
        assert "roster" not in text
        assert "likelihood_exponent" not in text
