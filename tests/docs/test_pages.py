"""What the pages say is so: quoted texts are in the source, commands are commands, examples run."""

import ast
import re
import shlex
import textwrap
import tomllib
from functools import cache
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import potluck
from potluck.cli import app
from potluck.config import from_tree
from potluck.objective import advantages, losses, weights
from potluck.objective.methods import METHODS

pytestmark = pytest.mark.page

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
HOLE = "\0"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


def blocks(page, kind):
    return [text for its, text in FENCE.findall(page.read_text(encoding="utf-8")) if its == kind]


# Texts.


def text_of(node):
    """A string literal as the program says it, with a hole for each value; None: it is none."""
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) or HOLE for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


@cache
def texts_of_the_source():
    trees = [ast.parse(path.read_text()) for path in Path(potluck.__file__).parent.rglob("*.py")]
    return [text for tree in trees for node in ast.walk(tree) if (text := text_of(node))]


def quoted_texts():
    page = (ROOT / "docs" / "faq.md").read_text(encoding="utf-8")
    return re.findall(r"^\| `([^`]{15,})` \|", page, re.M)


def test_the_errors_that_the_page_quotes_are_those_of_the_source():
    assert len(quoted_texts()) >= 12
    for quoted in quoted_texts():
        parts = [re.escape(part.strip()) for part in quoted.split("...") if part.strip()]
        pattern = re.compile(".*?".join(parts), re.S)
        assert any(pattern.search(text) for text in texts_of_the_source()), quoted


# Commands.

FILES = [*PAGES, *(p for p in sorted((ROOT / "deploy").rglob("*")) if p.is_file())]


def commands_of(path):
    """Potluck commands of a file, in words: they begin a line or backquotes, or follow "exec"."""
    text = re.sub(r"\\\n[ #]*", "", path.read_text(encoding="utf-8"))
    starts = r"^[ #]*|\bexec |\bsrun (?:--.* )?" + (
        "" if path in PAGES and path.name != "swarm.md" else "|`"
    )
    for line in re.findall(rf"(?:{starts})potluck ((?:--|[a-z]+ )[^`\n]*)", text, re.M):
        line = re.split(r"\s(?:>>?|\|\||&|#)|`", line)[0]
        yield [w for w in shlex.split(line) if not re.fullmatch(r"\$\{\w+\[@\]\}", w)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_command_exists_with_its_options(path):
    group = typer.main.get_command(app)
    for name, *words in commands_of(path):
        if name.startswith("--"):
            assert name in {option for each in group.params for option in each.opts}
        elif name != "reproduce":  # of the experiments' own distribution
            group.commands[name].make_context(name, words)


def test_commands_are_found_and_wrong_options_too(tmp_path):
    assert sum(len(list(commands_of(path))) for path in FILES) >= 75
    (tmp_path / "a").write_text("# one\n    srun --x potluck join a --lisen \\\n b || true\n")
    ((name, *words),) = commands_of(tmp_path / "a")
    with pytest.raises(Exception, match="--lisen"):
        typer.main.get_command(app).commands[name].make_context(name, words)


# The README.


def test_the_readme_has_no_block_that_no_test_reads():
    kinds = {kind for kind, _ in FENCE.findall(README.read_text(encoding="utf-8"))}
    assert kinds == {"toml", "sh", "python"}  # python: .ci/run, and below


# Paths.

PATH = re.compile(r"`((?:[a-z][a-z_]*/)+[\w.-]+\.(?:py|sh|toml|md|j2))`")


def test_a_file_that_a_page_names_is_there():
    named = {path for page in PAGES for path in PATH.findall(page.read_text(encoding="utf-8"))}
    package = ROOT / "src" / "potluck"
    assert len(named) > 30
    assert {p for p in named if not (ROOT / p).exists() | (package / p).exists()} == set()


# Examples.


@pytest.mark.parametrize("page", ["methods.md", "trl.md", "environments.md"])
def test_the_recipes_and_objectives_of_a_page_are_read(page):
    for text in blocks(ROOT / "docs" / page, "python") if page == "methods.md" else ():
        exec(compile(text, page, "exec"), {})
    found = blocks(ROOT / "docs" / page, "toml")
    assert found
    for text in found:
        tree = tomllib.loads(text)
        node = {"some": {"model": "builtin:digits-small"}}
        from_tree({"name": "page", "node": node} | tree)


def test_the_game_of_the_page_is_graded_as_the_page_says(tmp_path, monkeypatch):
    page = ROOT / "docs" / "environments.md"
    (tmp_path / "guess.py").write_text("".join(blocks(page, "python")))
    monkeypatch.chdir(tmp_path)
    first, *lines = CliRunner().invoke(app, ["env", "check", "guess.py:Guess"]).output.splitlines()
    assert "replay" in first
    assert textwrap.indent("\n".join(lines), "    ") in page.read_text(encoding="utf-8")


# The methods.


def test_the_page_of_methods_has_a_section_of_each_and_the_reference_its_keys():
    page = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^## `([\w-]+)`$", page, re.M)) == set(METHODS)
    page = (ROOT / "docs" / "reference" / "recipe.md").read_text(encoding="utf-8")
    rows = re.findall(
        r'^\| `"([\w-]+)"` \| `"([\w-]+)"` \| `(\w+)` \| `"([\w-]+)"` \|$', page, re.M
    )
    assert {name: keys for name, *keys in rows} == {
        name: [its.importance, str(its.filter).lower(), its.others] for name, its in METHODS.items()
    }


def test_the_code_that_the_page_of_methods_links_is_there():
    page = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    links = re.findall(r"\[([^\]]+)\]\(\.\./(src/[\w/.]+)\)", page)
    assert len(links) >= 10
    for text, path in links:
        source = (ROOT / path).read_text()
        for name in re.findall(r"`(\w+)`", text):
            assert re.search(rf"^(def|class) {name}\b|^{name}\b", source, re.M), (name, path)
    modules = (advantages, losses, weights)
    assert all(module.__name__.split(".")[-1] in page for module in modules)
