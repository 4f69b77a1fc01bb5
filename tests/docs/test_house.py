"""House rules that a reader would otherwise have to remember: names, docstrings, imports."""

import ast
from collections import defaultdict
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import potluck

ROOT = Path(potluck.__file__).parent
FILES = {
    ".".join(["potluck", *path.relative_to(ROOT).with_suffix("").parts]).removesuffix(
        ".__init__"
    ): path.read_text(encoding="utf-8")
    for path in ROOT.rglob("*.py")
}
FRAGMENTS = (
    *("What", "Of", "Whether", "Where", "Who", "As"),
    *("From", "All", "By", "Those", "How", "That"),
)
"""First words that leave a docstring without a head: "Of ``seeds``, those that ..."."""


@cache
def modules():
    """The tree of each module, where a test wants it: all processes import this file."""
    return {name: ast.parse(text) for name, text in FILES.items()}


def types_of(tree):
    """Names of a module's classes and type aliases (``Loss = Callable[...]``)."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name[0].isupper() and not name.isupper():
                yield name


def test_no_two_types_have_one_name():
    homes = defaultdict(list)
    for module, tree in modules().items():
        for name in types_of(tree):
            homes[name].append(module)
    assert {name: at for name, at in homes.items() if len(at) > 1} == {}


def public_functions(tree):
    """Functions of a module and methods of its classes whose names have no underscore in front."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    for node in [*tree.body, *(inner for each in classes for inner in each.body)]:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield node


def test_a_docstring_of_a_function_begins_with_its_verb():
    told = {
        f"{module}.{function.name}": docstring
        for module, tree in modules().items()
        for function in public_functions(tree)
        if (docstring := ast.get_docstring(function))
    }
    fragments = [name for name, text in told.items() if text.split()[0].strip(",.") in FRAGMENTS]
    assert len(fragments) < 0.03 * len(told), f"{len(fragments)} of {len(told)}: {fragments}"


def imports_of(tree):
    """The modules of potluck that a module imports, in functions and for types too."""
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in FILES else node.module for name in inner]
        yield from (name for name in names if name in FILES)


def test_no_module_imports_itself_by_way_of_others():
    graph = {module: set(imports_of(tree)) - {module} for module, tree in modules().items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))
