"""The site: its reference is complete, its links lead somewhere, its faults are found."""

import dataclasses
import doctest
import tomllib
from pathlib import Path

import pytest

import make_reference
import make_site
import site_check
import site_lists
import site_pages
from potluck import reports
from potluck.config import RunConfig
from potluck.fields import Options

pytestmark = pytest.mark.page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def test_examples_of_the_scripts_run():
    for module in (make_reference, make_site, site_lists, site_pages):
        assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("name", ["recipe.md", "metrics.md"])
def test_the_reference_is_what_its_script_makes(name):
    made = make_reference.pages()[name]
    committed = (DOCS / "reference" / name).read_text(encoding="utf-8")
    assert committed == made, "run `make reference`"


def tables_below(kind):
    for inner in kind.__subclasses__():
        yield inner
        yield from tables_below(inner)


def test_every_key_of_a_recipe_has_an_entry():
    page = (DOCS / "reference/recipe.md").read_text(encoding="utf-8")
    keys = {key for table in tables_below(Options) for key in table.__struct_fields__}
    assert {"likelihood_exponent", "r", "url", "question", "sampling", "lora"} <= keys
    for key in keys:
        is_table = any(f"{key}{end}`" in page for end in ("]", "]]", ".NAME]"))
        assert f"\n| `{key}` | " in page or is_table, key


def test_every_metric_has_an_entry():
    page = (DOCS / "reference/metrics.md").read_text(encoding="utf-8")
    kinds = (reports.RoundReport, reports.AuthorReport, reports.RewardReport)
    for kind in (*kinds, reports.EvaluationReport):
        for field in dataclasses.fields(kind):
            assert f"\n| `{field.name}` | " in page, field.name


def test_a_key_without_a_meaning_is_refused(monkeypatch):
    monkeypatch.setattr(make_reference, "docstrings", lambda kind: {"seed": "  "})
    with pytest.raises(make_reference.MissingText, match=r"RunConfig\.seed has no docstring"):
        make_reference.text_of(RunConfig, "seed")


def test_the_navigation_has_every_page():
    project = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
    listed = list(make_site.pages_of(project["nav"]))
    written = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    outside = {path for path in listed if path.startswith("source/")}
    assert len(listed) == len(set(listed))
    assert set(listed) - outside == written | {"index.md"}
    assert all((ROOT / path.removeprefix("source/")).is_file() for path in outside)


@pytest.fixture
def tree(tmp_path):
    files = {
        "docs/a.md": "[x](../src/x.py) [r](../recipes) [b](sub/b.md#c) ![p](p.png)\n`[k](../k)`\n",
        "docs/sub/b.md": "<!-- ::: potluck.load -->\n[e](https://e.org/f.md) [l](../../LOG.md)",
        "docs/p.png": "",
        "src/x.py": "x = 1\n",
        "recipes/README.md": "[back](../docs/a.md) [one](one.toml)",
        "recipes/one.toml": "",
        "LOG.md": "# Log",
        "CHANGES.md": "# Changes",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_links_out_of_docs_lead_to_copies(tree):
    made = tree / "made"
    site_pages.lay_out(tree, made, ["a.md", "source/CHANGES.md"])
    first = (made / "a.md").read_text()
    assert "[x](source/src/x.py.md) [r](source/recipes/README.md)" in first
    assert "[b](sub/b.md#c) ![p](p.png)\n`[k](../k)`" in first
    second = (made / "sub/b.md").read_text()
    assert second.startswith("::: potluck.load\n")
    assert "[e](https://e.org/f.md) [l](../source/LOG.md)" in second
    back = (made / "source/recipes/README.md").read_text()
    assert back == "[back](../../a.md) [one](one.toml.md)"
    assert "```python\nx = 1\n" in (made / "source/src/x.py.md").read_text()
    assert (made / "source/CHANGES.md").exists()


def test_the_home_page_is_the_readme(tree):
    (tree / "README.md").write_text("# Home\n[a](docs/a.md) ![p](docs/p.png)")
    (tree / "docs/a.md").write_text("[home](../README.md)")
    site_pages.lay_out(tree, made := tree / "made", ["index.md", "a.md"])
    assert (made / "index.md").read_text() == "# Home\n[a](a.md) ![p](p.png)"
    assert (made / "a.md").read_text() == "[home](index.md)"


@pytest.mark.parametrize("target", ["../src/y.py", "gone.md", "../../outside.md"])
def test_a_link_or_a_navigation_that_leads_to_no_file_ends_the_build(tree, target):
    (tree.parent / "outside.md").write_text("")
    for page in ("gone.md", "source/GONE.md"):
        with pytest.raises(site_pages.SiteError, match=f"names {page} in nav, but there is no "):
            site_pages.lay_out(tree, tree / "made", ["a.md", page])
    (tree / "docs/a.md").write_text(f"[x]({target})")
    with pytest.raises(site_pages.SiteError, match=f"docs/a.md links to {target}, which is no"):
        site_pages.lay_out(tree, tree / "made", [])


def test_a_list_of_commonmark_keeps_its_items():
    text = "Text:\n1. one\n\n   more\n2. two\n```\n- code\n```\n- a\n  - b\n    c"
    assert site_lists.relisted(text) == (
        "Text:\n\n1. one\n\n    more\n\n2. two\n```\n- code\n```\n- a\n    - b\n        c"
    )


FAULTS = {
    '<a href="gone/">x</a>': "gone/ leads nowhere",
    '<a href="other.html#no">x</a>': "other.html#no has no such heading",
    '<img src="no.png">': "no.png leads nowhere",
    '<script src="https://cdn.org/x.js"></script>': "asks another host: https://cdn.org/x.js",
    '<link rel="stylesheet" href="//fonts.org/f">': "asks another host: //fonts.org/f",
    "<article><p>Two:\n- a</p></article>": "Markdown that was not read",
    "<article><li>so $x^2$</li></article>": "Markdown that was not read",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_of_a_site_is_found(tmp_path, fault):
    sound = (
        '<a href="other.html#yes">x</a><a href="https://e.org">e</a><li>\n1. a heading</li>'
        "<article><p>so <code>\n- a $x$</code></p></article>"
    )
    (tmp_path / "other.html").write_text(f'<h2 id="yes">y</h2>{sound}')
    assert list(site_check.faults(tmp_path)) == []
    (tmp_path / "index.html").write_text(sound + fault)
    (found,) = site_check.faults(tmp_path)
    assert found.startswith("index.html: ")
    assert FAULTS[fault] in found


def test_formulas_become_mathml():
    markdown = pytest.importorskip("markdown")
    formulas = pytest.importorskip("site_formulas", exc_type=ImportError)
    page = markdown.markdown(
        "so $P_i^c$, for 5$ and 6$\n\n$$\n\\left(\\sum_{t=1}^T a < b\\right)\n$$",
        extensions=[formulas.makeExtension()],
    )
    assert "<msubsup><mi>P</mi>" in page
    assert "5$ and 6$" in page
    assert '<math display="block">' in page
    assert "<munderover><mo>∑</mo>" in page
    assert "<mo>&lt;</mo>" in page
