"""Games and environments that tests play, and that processes apart import: pure Python."""

import asyncio
import decimal
import os
import random
import socket
import time
from pathlib import Path


class Count:
    """Says the number of turns; "x" ends it, and each turn pays 1."""

    def reset(self, *, seed, start=0, **row):
        self.said = start
        return f"from {start}"

    def step(self, text):
        self.said += 1
        return f"{text}{self.said}", 1.0, "x" in text


class Sums:
    """Multiplies decimals, as exactly as the last "precision" in its process has it."""

    actions = ("1",)

    def reset(self, seed):
        lot = random.Random(seed)
        self.one, self.other = (decimal.Decimal(lot.randint(1000, 9999)) for _ in range(2))
        return f"{self.one} * {self.other}"

    def step(self, text):
        if text.startswith("precision "):
            decimal.getcontext().prec = int(text.removeprefix("precision "))
            return "set", 0.0, False
        right = self.one * self.other
        return f"{right}", float(decimal.Decimal(text) == right), True


class Dice:
    """Draws from global random numbers at each turn."""

    def reset(self, seed):
        return f"{random.random()}"

    def step(self, text):
        import numpy as np

        return f"{random.random()} {np.random.rand()}", random.random(), text == "stop"


class Harmful(Count):
    """Does what a turn says."""

    def step(self, text):
        if text == "hang":
            while True:
                pass
        if text == "sleep":
            time.sleep(1000)
        if text == "raise":
            raise ValueError("no such move")
        if text == "allocate":
            return "x" * (10 * 2**30), 0.0, False
        if text == "exit":
            raise SystemExit
        if text == "print":
            print("x" * 10_000_000)
            return "x" * 10_000_000, 0.0, False
        if text == "nan":
            return "", float("nan"), False
        if text == "None":
            return None
        return super().step(text)


class Counter:
    """An environment in TRL's shape."""

    made = 0

    def __init__(self):
        Counter.made += 1
        self.number = Counter.made

    def reset(self, start: int = 0, **row) -> str | None:
        self.value, self.goal = start, row["goal"]
        return f" Now it is {start}." if start else None

    def increment(self, step: int) -> int:
        """
        Add to the counter.

        Args:
            step: Number to add.

        Returns:
            The counter.
        """
        if step < 0:
            raise ValueError("step must be positive")
        self.value += step
        return self.value

    async def wait(self, word: str) -> str:
        """
        Say a word a little later.

        Args:
            word: The word.
        """
        await asyncio.sleep(0)
        return word

    def which(self) -> int:
        """Tell the number of the instance."""
        return self.number

    def get_reward(self) -> float:
        return float(self.value == self.goal)

    def _hidden(self) -> str:
        return "secret"


class Late(Counter):
    """Its reward is async."""

    async def get_reward(self) -> float:
        await asyncio.sleep(0)
        return 0.25


class Calculator:
    """Pays nothing: that is left to the data's answers, or to a reward function."""

    def reset(self, **row) -> None:
        self.row = row

    def add(self, left: int, right: int) -> int:
        """
        Add two numbers.

        Args:
            left: A number.
            right: Another one.
        """
        return left + right


class Caller(Count):
    """Connects to a port of this machine."""

    def step(self, text):
        try:
            socket.create_connection(("127.0.0.1", int(text)), timeout=10).close()
        except OSError:
            return "OSError", 0.0, False
        return "connected", 0.0, False


class NoReset:
    """No environment at all."""


class Client(Count):
    """Made of a connection to the port that a file names."""

    def __init__(self):
        port = int(Path(os.environ["TMPDIR"], "port").read_text())
        socket.create_connection(("127.0.0.1", port), timeout=10).close()
