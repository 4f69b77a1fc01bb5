import base64
from html.parser import HTMLParser

import pytest

from display.run_folders import HOSTILE, STEERS, summary
from potluck.demo.report import write_report

PICTURE = b"\x89PNG not really"
EMPTY = {"meta", "img", "br", "link", "hr"}


class Page(HTMLParser):
    """What a browser would make of the page: its tags, its text, its attributes."""

    def __init__(self, source):
        super().__init__()
        self.tags, self.open, self.attributes, self.cells, self.text = [], [], [], [], ""
        self.feed(source)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attributes]
        if tag not in EMPTY:
            self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if {"td", "th"} & set(self.open):
            self.cells[-1] += data


def report(tmp_path, of_summary):
    picture, path = tmp_path / "picture.png", tmp_path / "report.html"
    picture.write_bytes(PICTURE)
    write_report(of_summary, picture, path)
    source = path.read_text(encoding="utf-8")
    page = Page(source)
    assert page.open == []
    return source, page


def full(**changes):
    return summary(
        out_of_distribution={"columns": {"alone": 0.125, "nois": None}},
        filtered_share={"columns": {"f-tis": 0.31}},
        samples={"columns": [{"question": "1+2=", "text": "3#3", "reward": 1.0}]},
        **changes,
    )


def test_the_report_needs_nothing_but_itself(tmp_path):
    source, page = report(tmp_path, full())
    assert "http://" not in source
    assert "https://" not in source
    assert "url(" not in source
    loads = [(tag, value) for tag, name, value in page.attributes if name in ("src", "href")]
    assert [tag for tag, value in loads if value.startswith("data:image/png;base64,")] == ["img"]
    assert len(loads) == 1
    assert not {"script", "link", "iframe"} & set(page.tags)
    policy = [value for _, name, value in page.attributes if name == "content"]
    assert any("default-src 'none'" in value for value in policy)


def test_the_picture_is_embedded_and_told_in_words(tmp_path):
    _, page = report(tmp_path, full())
    image = {name: value for tag, name, value in page.attributes if tag == "img"}
    assert base64.b64decode(image["src"].removeprefix("data:image/png;base64,")) == PICTURE
    assert "Naive sharing (NoIS) cost `columns` 0.36 of accuracy" in image["alt"]


def test_the_verdict_and_the_time_are_those_of_the_summary(tmp_path):
    _, page = report(tmp_path, full())
    assert "Naive sharing (NoIS) cost columns 0.36 of accuracy; F-TIS ended 0.01" in page.text
    assert "Naive sharing (NoIS) gained terse 0.05 of accuracy; F-TIS ended level" in page.text
    assert "40 rounds of training under each method; all of it took 123 seconds" in page.text


def test_the_table_has_a_row_per_node_and_method(tmp_path):
    _, page = report(tmp_path, full())
    head = ["model", "method", "start", "end", "other problems, end", "answers filtered"]
    cells = (
        "columns alone 0.30 0.80 0.12 - NoIS 0.30 0.44 - - F-TIS 0.30 0.79 - 31% "
        "terse alone 0.20 0.70 - - NoIS 0.20 0.75 - - F-TIS 0.20 0.70 - -"
    )
    assert page.cells == [*head, *cells.split()]


@pytest.mark.parametrize(
    ("key", "title"),
    [("out_of_distribution", "other problems, end"), ("filtered_share", "answers filtered")],
)
def test_a_column_is_there_only_where_the_summary_has_it(tmp_path, key, title):
    _, page = report(tmp_path, summary(**{key: {"terse": {"alone": 0.5}}}))
    assert page.cells[:5] == ["model", "method", "start", "end", title]
    assert len(page.cells) == 5 + 2 + 3 * 2 * 4
    _, page = report(tmp_path, summary())
    assert len(page.cells) == 4 + 2 + 3 * 2 * 3


def test_samples_are_marked_right_and_wrong(tmp_path):
    samples = [
        {"question": "1+2=", "text": "3#3", "reward": 1.0},
        {"question": "2+2=", "text": "5#5", "reward": 0.0},
    ]
    _, page = report(tmp_path, summary(samples={"columns": samples}))
    assert "1+2= right3#3" in page.text.replace("\n", "")
    assert "2+2= wrong5#5" in page.text.replace("\n", "")
    _, page = report(tmp_path, summary())
    assert "What the models wrote" not in page.text


def test_hostile_text_is_text_wherever_it_stands(tmp_path):
    quote = HOSTILE + "\" onload='x' `<b>`"
    sample = {"question": quote, "text": quote, "reward": 0.0}
    nodes = {quote: {"alone": [0, 0, 0], "nois": [0, 0, 0], "<b>": [0, 0, 0]}}
    source, page = report(tmp_path, summary(nodes=nodes, samples={quote: [sample]}))
    assert not {"script", "b"} & set(page.tags)
    assert not any(name.startswith("on") for _, name, _ in page.attributes)
    assert "[red]boo[/red]⏎<script>alert(1)</script>" in page.text
    assert not set(STEERS) & set(source)


def test_how_to_go_on_is_told(tmp_path):
    _, page = report(tmp_path, full())
    for command in (
        "potluck new my-run.toml",
        "potluck run my-run.toml",
        "potluck show runs/my-run",
    ):
        assert command in page.text


@pytest.mark.parametrize("rounds", [[0], [0, 1]])
def test_a_short_demo_has_a_report(tmp_path, rounds):
    nodes = {"columns": {"alone": [0.5] * len(rounds), "nois": [0.5] * len(rounds)}}
    _, page = report(tmp_path, {"nodes": nodes, "eval_rounds": rounds})
    assert ("No round was trained" in page.text) == (rounds == [0])
    assert "Potluck's demo with one model" in page.text


def test_the_page_answers_to_dark_screens_and_to_phones(tmp_path):
    source, _ = report(tmp_path, full())
    assert "prefers-color-scheme: dark" in source
    assert 'name="viewport" content="width=device-width' in source
