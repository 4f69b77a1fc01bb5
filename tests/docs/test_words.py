"""Words that readers did not understand: none stands in what a user reads."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.page

REPOSITORY = Path(__file__).parents[2]
PRIVATE = {
    r"dice": "random numbers, a seed",
    r"twins?": "two copies of one model",
    r"schooling|brought up": "pretraining, pretrained",
    r"rooms|(?<=\ba )room|(?<=\bof the )room": "package",
    r"out of room": "cut off at the length limit",
    r"lived again": "repeated",
    r"whoever": "any node that",
    r"who (?:has|have|had|is|are|was|asks?|listens?|shares?|claims?|sends?|may|can)"
    r"(?! (?:here|missing))": "a node that",
    r"hearsay": "through a third node",
    r"finds? back|found back": "reconnect",
    r"(?:is|are) paid|pays? (?:0|in parts)": "scores, rewards",
    r"say it, and end|end it itself": "print; stop it yourself",
    r"not a word": "no message",
    r"tells? from 0|told by chance": "differs from 0, by chance",
}
"""Pattern of a word, and what to write in its place."""
ALLOWED = {"are paid for", "is paid for", "Who may look"}
"""Money, and the title of a page's section."""


def pages():
    listed = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    named = [Path(name) for name in listed.stdout.splitlines()]
    return [p for p in named if p.parts[0] != "experiments" and p.name != "CHANGELOG.md"]


def messages(path):
    """Texts of a module that may be shown: all but docstrings, of which those of commands are."""
    tree = ast.parse(path.read_text())
    told = [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    if "cli" not in path.parts:
        alone = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
        told = [node for node in told if id(node) not in alone]
    return [node.value for node in told if isinstance(node.value, str)]


def found(text):
    """Each private word in a text, with what to write."""
    text = " ".join(text.split())
    for words, better in PRIVATE.items():
        for hit in re.finditer(rf"\b(?:{words})\b", text, re.IGNORECASE):
            around = text[max(0, hit.start() - 30) : hit.end() + 30]
            if not any(allowed in around for allowed in ALLOWED):
                yield f"{around!r}: {better}"


def test_no_page_message_or_help_has_a_private_word():
    texts = {page: [(REPOSITORY / page).read_text()] for page in pages()}
    texts |= {path: messages(path) for path in (REPOSITORY / "src").rglob("*.py")}
    seen = {str(path): [f for text in its for f in found(text)] for path, its in texts.items()}
    assert not {name: words for name, words in seen.items() if words}
    assert list(found("Nodes\nwho listen are\nbrought\n  up")) != []
