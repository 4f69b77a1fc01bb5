"""The page's server with a feed of made-up views: what a test changes is what the browser is told.

The feed stands in for a folder, which could not be as strange as the test wants.
"""

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import uvicorn

from potluck.show.web.folder import WatchedRun
from potluck.show.web.server import Server
from potluck.show.web.views import PairView, RunView, StartView, TextsView, TextView
from show.web.made_views import made_pair_view, made_start, made_texts


class Told(WatchedRun):
    """Feed of one run, whatever its id; ``change`` is sent to every browser that listens."""

    def __init__(self, run: RunView) -> None:
        super().__init__(Path("made-up"))
        self.whole = run
        self.shown: StartView = made_start()
        self.other: object = None
        self.extra_text = ""
        self.episodes: list[TextView] = []
        self._changes: list[dict[str, Any]] = []

    def change(self, **sections: Any) -> None:
        """Tell of a change: RunView's fields, of which those given are sent."""
        self._changes.append({"now_s": time.time(), **sections})

    def start(self) -> StartView:
        return self.shown

    def run(self, run: str) -> WatchedRun:
        return self

    def experiment(self, experiment: str) -> object:
        return self.other

    def look(self, *, every_s: float = 0.0) -> int:
        self._messages.clear()
        return 1 + len(self._changes)

    def view(self, since: int = 0) -> RunView:
        if not since:
            return self.whole
        changed = {
            name: each for change in self._changes[since - 1 :] for name, each in change.items()
        }
        return RunView(**changed)

    def pair(self, learner: str, author: str) -> PairView:
        return made_pair_view(learner, author)

    def texts(self, node: str, round: int | None = None) -> TextsView:
        view = made_texts(node, 59 if round is None else round, self.extra_text)
        return msgspec.structs.replace(view, texts=[*self.episodes, *view.texts])


@contextmanager
def serving(place: Any, port: int = 0) -> Iterator[str]:
    """Serve until the block ends; yield the address."""
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    settings: Any = {"log_config": None, "access_log": False, "lifespan": "off", "ws": "none"}
    server = uvicorn.Server(uvicorn.Config(Server(place), timeout_graceful_shutdown=1, **settings))
    listening = socket.create_server(("127.0.0.1", port))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()
