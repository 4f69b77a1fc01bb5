import base64
from html.parser import HTMLParser

from demo.results import outcome, outcomes, result
from display.run_folders import HOSTILE, STEERS
from potluck.demo.report import Sample, write_report

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


def report(tmp_path, of_result):
    picture, path = tmp_path / "picture.png", tmp_path / "report.html"
    picture.write_bytes(PICTURE)
    write_report(of_result, picture, path)
    source = path.read_text(encoding="utf-8")
    page = Page(source)
    assert page.open == []
    return source, page


def test_the_report_needs_nothing_but_itself(tmp_path):
    source, page = report(tmp_path, result())
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
    _, page = report(tmp_path, result())
    image = {name: value for tag, name, value in page.attributes if tag == "img"}
    assert base64.b64decode(image["src"].removeprefix("data:image/png;base64,")) == PICTURE
    assert "`large` with LWS: 0.01 above alone, 0.11 above half" in image["alt"]


def test_the_verdict_and_the_time_are_those_of_the_result(tmp_path):
    _, page = report(tmp_path, result())
    assert "large with LWS: 0.01 above alone, 0.11 above half; it wrote 48" in page.text
    assert "small with LWS: 0.25 below alone, 0.25 below half; it wrote 48" in page.text
    told = " ".join(page.text.split())
    assert "4 rounds of training in each setting; all of it took 123 seconds" in told


def test_the_table_has_a_row_per_node_and_setting(tmp_path):
    _, page = report(tmp_path, result())
    head = ["model", "setting", "written", "sampled reward", "greedy"]
    cells = (
        "large alone 96 0.80 1.00 0.75 half 48 0.70 0.50 0.75 LWS 48 0.81 1.00 - "
        "small alone 96 0.50 1.00 0.75 half 48 0.50 0.50 0.75 LWS 48 0.25 1.00 -"
    )
    assert page.cells == [*head, "four digits", *cells.split()]


def test_samples_are_marked_right_and_wrong(tmp_path):
    samples = [Sample("1+2=", "3#3", 1.0), Sample("2+2=", "5#5", 0.0)]
    _, page = report(tmp_path, result(samples={"large": samples, "small": []}))
    assert "1+2= right3#3" in page.text.replace("\n", "")
    assert "2+2= wrong5#5" in page.text.replace("\n", "")


def test_hostile_text_is_text(tmp_path):
    sample = Sample(HOSTILE, HOSTILE + "\" onload='x' `<b>`", 0.0)
    source, page = report(tmp_path, result(samples={"large": [sample]}))
    assert not {"script", "b"} & set(page.tags)
    assert not any(name.startswith("on") for _, name, _ in page.attributes)
    assert page.text.count("[red]boo[/red]⏎<script>alert(1)</script>") == 2
    assert not set(STEERS) & set(source)


def test_how_to_go_on_is_told(tmp_path):
    _, page = report(tmp_path, result())
    for command in (
        "potluck new my-run.toml",
        "potluck run my-run.toml",
        "potluck show runs/my-run",
    ):
        assert command in page.text


def test_a_short_demo_has_a_report(tmp_path):
    nodes = {"n": dict.fromkeys(outcomes(), outcome(0, sampled=(0.5,)))}
    _, page = report(tmp_path, result(nodes=nodes, rounds=1, seconds=0.0))
    assert "1 round of training in each setting." in " ".join(page.text.split())


def test_the_page_answers_to_dark_screens_and_to_phones(tmp_path):
    source, _ = report(tmp_path, result())
    assert "prefers-color-scheme: dark" in source
    assert 'name="viewport" content="width=device-width' in source
