"""GSM8K for tests: small made-up files (the real ones: see the conftest above)."""

import json

import pytest

from cheap import MADE_UP


@pytest.fixture(autouse=True)
def drawn_anew(monkeypatch):
    """Draw the problems that are made up each time: here they are what is tested."""
    for options in MADE_UP:
        monkeypatch.setattr(options, "make", options.make.__wrapped__)


@pytest.fixture(scope="session")
def write_gsm8k():
    """A function that writes made-up problems as train.jsonl and test.jsonl."""

    def write(folder, *, train=540, test=530):
        for part, count in (("train", train), ("test", test)):
            rows = (
                {"question": f"What is {i} + 1 ({part})?", "answer": f"It is ... #### {i + 1:,}"}
                for i in range(count)
            )
            (folder / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(folder)

    return write


@pytest.fixture(scope="session")
def made_up_path(write_gsm8k, tmp_path_factory):
    return write_gsm8k(tmp_path_factory.mktemp("gsm8k"))
