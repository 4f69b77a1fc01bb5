"""Pretrained models for the tests marked ``real``.

POTLUCK_REAL_MODELS names a folder with SmolLM2 of 135M weights in ``smol``; without it these tests
skip. Models of a test's own making have sharp or random heads, short prompts and one tokenizer:
they hide faults that the first real model shows.
"""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_models():
    models = os.environ.get("POTLUCK_REAL_MODELS", "")
    if not models:
        pytest.skip("POTLUCK_REAL_MODELS names no folder of pretrained models")
    return Path(models).resolve()


@pytest.fixture(scope="session")
def smol(real_models):
    return str(real_models / "smol")
