"""GSM8K in small made-up files; environments that are played in this process."""

import asyncio
import json
import random
import threading

import numpy as np
import pytest

from cheap import MADE_UP
from potluck.confined import Confined, NotReady
from potluck.tasks.arithmetic import SPLIT_SIZES
from potluck.tasks.environments import host


@pytest.fixture(autouse=True, scope="module")
def drawn_anew():
    """Draw the problems that are made up each time: here they are what is tested."""
    with pytest.MonkeyPatch.context() as patch:
        for options in MADE_UP:
            patch.setattr(options, "make", options.make.__wrapped__)
        yield


@pytest.fixture
def few(monkeypatch):
    """A tenth of the problems are drawn."""
    for split, size in SPLIT_SIZES.items():
        monkeypatch.setitem(SPLIT_SIZES, split, size // 10)


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


@pytest.fixture
def here(monkeypatch):
    """Play all environments in this process, one line after the other: only harmless ones."""
    answers, lock, state = {}, threading.Lock(), (random.getstate(), np.random.get_state())
    loops, new_loop = [], asyncio.new_event_loop

    def ask(process, text, limit_s, tries=2):
        with lock:
            try:
                if process not in answers:
                    answers[process] = host.prepare(process._words[-1])
            except Exception as error:
                raise NotReady(f"{type(error).__name__}: {error}") from None
            try:
                return answers[process](text.encode())
            except Exception as error:
                return f"{type(error).__name__}: {error}"

    monkeypatch.setattr(asyncio, "new_event_loop", lambda: loops.append(new_loop()) or loops[-1])
    monkeypatch.setattr(host, "leave_network", lambda: True)
    monkeypatch.setattr(Confined, "ask", ask)
    monkeypatch.setattr(Confined, "process", property(lambda process: process))
    yield
    host.Instance.acting = None
    for loop in loops:
        loop.close()
    random.setstate(state[0])
    np.random.set_state(state[1])
