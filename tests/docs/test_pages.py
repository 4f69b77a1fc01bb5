"""What the pages say is so: quoted texts are in the source, commands are commands, examples run."""

import ast
import re
import shlex
import tomllib
from functools import cache
from pathlib import Path

import pytest
import typer

import potluck
from potluck.cli import app
from potluck.config import from_tree
from potluck.objective import advantages, filters, losses, others
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


def test_there_are_texts_to_look_for():
    assert len(quoted_texts()) >= 30


@pytest.mark.parametrize("quoted", quoted_texts(), ids=lambda text: text[:40])
def test_an_error_that_the_page_quotes_is_one_of_the_source(quoted):
    parts = [re.escape(part.strip()) for part in quoted.split("...") if part.strip()]
    pattern = re.compile(".*?".join(parts), re.S)
    assert any(pattern.search(text) for text in texts_of_the_source())


# Commands.


def commands_of(page):
    """Every ``potluck ...`` that a page tells to type, in blocks of code."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in re.findall(r"^(?:    )?(potluck [a-z-].*)$", text, re.M):
        yield line.split(" #")[0].split(" >")[0].strip()


COMMANDS = [(page.name, line) for page in PAGES for line in dict.fromkeys(commands_of(page))]


@pytest.mark.parametrize("page, line", COMMANDS, ids=lambda text: text[:50])
def test_a_command_that_a_page_tells_has_such_options(page, line):
    name, *words = shlex.split(line)[1:]
    group = typer.main.get_command(app)
    if name.startswith("--"):
        assert name in {option for each in group.params for option in each.opts}
        return
    command = group.commands[name]
    if name != "reproduce":  # of the experiments' own distribution
        command.make_context(name, words)


def test_a_wrong_option_is_found():
    command = typer.main.get_command(app).commands["run"]
    with pytest.raises(Exception, match=r"[Nn]o such option"):
        command.make_context("run", ["digits.toml", "--chekc"])


# The README.


def test_the_readme_is_short():
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 120


def test_the_readme_has_no_block_that_no_test_reads():
    kinds = {kind for kind, _ in FENCE.findall(README.read_text(encoding="utf-8"))}
    assert kinds == {"toml", "sh", "python"}  # python: .ci/run, and below


def test_the_recipe_of_the_readme_is_read():
    (recipe,) = blocks(README, "toml")
    assert list(from_tree(tomllib.loads(recipe)).node) == ["small", "large"]


# Paths.

PATH = re.compile(r"`((?:[a-z][a-z_]*/)+[\w.-]+\.(?:py|sh|toml|md|j2))`")


def test_a_file_that_a_page_names_is_there():
    named = {path for page in PAGES for path in PATH.findall(page.read_text(encoding="utf-8"))}
    package = ROOT / "src" / "potluck"
    assert len(named) > 30
    assert {p for p in named if not (ROOT / p).exists() | (package / p).exists()} == set()


# Examples.


@pytest.mark.parametrize("page", ["methods.md"])
def test_the_objective_of_a_page_runs(page):
    for text in blocks(ROOT / "docs" / page, "python"):
        exec(compile(text, page, "exec"), {})


@pytest.mark.parametrize("page", ["methods.md", "trl.md", "partners.md"])
def test_the_recipes_of_a_page_are_read(page):
    found = blocks(ROOT / "docs" / page, "toml")
    assert found
    for text in found:
        tree = tomllib.loads(text)
        node = {"some": {"model": "builtin:digits-small"}}
        from_tree({"name": "page", "node": node} | tree)


# The methods.


def test_the_page_of_methods_has_a_section_and_the_keys_of_each():
    page = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^## `([\w-]+)`$", page, re.M)) == set(METHODS)
    rows = re.findall(r'^\| `([\w-]+)` \| `"([\w-]+)"` \| (\w+) \| `"([\w-]+)"` \|$', page, re.M)
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
    modules = (advantages, filters, losses, others)
    assert all(module.__name__.split(".")[-1] in page for module in modules)
