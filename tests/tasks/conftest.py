"""GSM8K for tests: the real files where they are, and small made-up ones."""

import json
import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def gsm8k_path():
    """The folder of the real data: in $POTLUCK_SHARED or in ``shared`` beside the repository."""
    shared = Path(os.environ.get("POTLUCK_SHARED") or REPOSITORY.parent / "shared")
    folder = shared / "data" / "gsm8k"
    if not folder.is_dir():
        # Where the data must be, as in the gate, its absence is a failure and no reason to skip.
        refuse = pytest.fail if os.environ.get("POTLUCK_SHARED_REQUIRED") else pytest.skip
        refuse(f"the data of GSM8K is not in {folder}; set POTLUCK_SHARED")
    return str(folder)


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
