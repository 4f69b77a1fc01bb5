"""The collector of cycles stands still where objects are made by the million, and goes on after."""

import gc

import pytest
from transformers import PreTrainedTokenizerFast
from typer.testing import CliRunner

from potluck import STARTING_RECIPE
from potluck.builder import plan
from potluck.cli import app
from potluck.collector import without_collector
from potluck.model.loading import load_tokenizer


def test_it_goes_on_after_a_block_an_error_and_a_block_within():
    with without_collector():
        with without_collector():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(KeyError), without_collector():
        raise KeyError
    assert gc.isenabled()


def test_a_vocabulary_is_loaded_without_it(monkeypatch):
    seen = []
    load = PreTrainedTokenizerFast.from_pretrained

    def from_pretrained(*given, **named):
        seen.append(gc.isenabled())
        return load(*given, **named)

    monkeypatch.setattr(PreTrainedTokenizerFast, "from_pretrained", from_pretrained)
    load_tokenizer("builtin:digits-small")
    assert seen == [False]
    assert gc.isenabled()


def test_a_check_looks_for_no_cycles(monkeypatch):
    seen = []
    check = plan.check

    def looking(*given, **named):
        seen.append(gc.isenabled())
        return check(*given, **named)

    monkeypatch.setattr(plan, "check", looking)
    ended = CliRunner().invoke(app, ["run", str(STARTING_RECIPE), "--check"])
    assert (ended.exit_code, seen) == (0, [False])
    assert gc.isenabled()
