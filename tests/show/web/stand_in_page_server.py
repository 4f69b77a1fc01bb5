"""A server of made-up views: what a test changes in ``views`` is what the browser is told next.

It stands in for ``potluck watch`` where a folder could not be as strange as the test wants.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from potluck.show.web.views import RunView, StartView, TextsView
from show.web.made_views import made_pair_view, made_start, made_texts


class Told:
    """What the server answers with; ``change`` is sent to every browser that listens."""

    def __init__(self, page: str, policy: str, run: RunView) -> None:
        self.page = page
        self.policy = policy
        self.run = run
        self.start: StartView = made_start()
        self.experiment: object = None
        self.extra_text = ""
        self.is_down = False
        self._changes: list[bytes] = []
        self._arrived = threading.Condition()

    def change(self, **sections: Any) -> None:
        """Tell of a change: RunView's fields, of which those given are sent."""
        view = RunView(name=self.run.name, run=self.run.run, **{"now_s": time.time(), **sections})
        with self._arrived:
            self._changes.append(msgspec.json.encode(view))
            self._arrived.notify_all()

    def changes(self, after: int, timeout_s: float) -> list[bytes]:
        with self._arrived:
            self._arrived.wait_for(lambda: len(self._changes) > after or self.is_down, timeout_s)
            return self._changes[after:]

    def texts(self, node: str, round: int, query: str) -> TextsView:
        view = made_texts(node, round, self.extra_text)
        found = [text for text in view.texts if query in text.text]
        return msgspec.structs.replace(view, texts=found)


@contextmanager
def serving(told: Told, port: int = 0) -> Iterator[str]:
    """Serve until the block ends; yield the address."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *values: object) -> None:
            pass

        def do_GET(self) -> None:
            place = urlsplit(self.path)
            asked = {key: values[0] for key, values in parse_qs(place.query).items()}
            if place.path == "/":
                self.answer(told.page.encode(), "text/html; charset=utf-8")
            elif place.path == "/api/events":
                self.tell()
            else:
                self.answer(msgspec.json.encode(self.view(place.path, asked)), "application/json")

        def view(self, path: str, asked: dict[str, str]) -> object:
            match path:
                case "/api/start":
                    return told.start
                case "/api/run":
                    return told.run
                case "/api/pair":
                    return made_pair_view(asked["learner"], asked["author"])
                case "/api/texts":
                    return told.texts(asked["node"], int(asked.get("round", 59)), "")
                case "/api/search":
                    return told.texts(asked["node"], 59, asked["q"])
                case "/api/experiment":
                    return told.experiment
            return {"error": f"nothing at {path}"}

        def answer(self, body: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Security-Policy", told.policy)
            self.end_headers()
            self.wfile.write(body)

        def tell(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            try:
                self.wfile.write(b"data: " + msgspec.json.encode(told.run) + b"\n\n")
                count = len(told.changes(0, 0))
                while not told.is_down:
                    self.wfile.flush()
                    for line in told.changes(count, 0.5):
                        count += 1
                        self.wfile.write(b"data: " + line + b"\n\n")
                    self.wfile.write(b": keep-alive\n\n")
            except OSError:
                return  # the browser went away

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        told.is_down = True
        with told._arrived:
            told._arrived.notify_all()
        server.shutdown()
        server.server_close()
        thread.join()
