"""A small server that answers as OpenAI's chat endpoint does, and tells no log-probabilities.

It writes numbered texts. What a server can do wrong is set as data:

    server.statuses = [500, 429]      the next answers to requests for completions
    server.headers = {"Retry-After": "1"}    of those
    server.said = b"..."              the body of those
    server.twist = lambda answer: ...     the JSON of an answer, or its bytes, is what this returns
    server.refuses = {"top_p": "..."}     parameters that it does not take, and what it says then
    server.ignores_n = True           one completion a request, whatever was asked for
    server.stalls = Event()           completions wait for it
    server.packed = True              answers come as gzip
    server.cut = 20                   bytes of a body after which the connection ends
    server.lists = 404                the status of its list of models
"""

import gzip
import json
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from potluck.rollout.base import EngineSettings
from potluck.rollout.texts.options import OpenAIOptions


class StandInChat(ThreadingHTTPServer):
    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.models, self.key, self.finish = ["teacher"], "", "stop"
        self.statuses, self.headers, self.said, self.twist = [], {}, b'{"error": "told to"}', None
        self.refuses, self.ignores_n, self.stalls, self.packed = {}, False, None, False
        self.cut, self.lists, self.usage = None, 200, {"prompt_tokens": 10, "completion_tokens": 5}
        self.seen, self.lock, self.busy, self.busiest = [], threading.Lock(), 0, 0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/v1"

    def asked(self):
        """The bodies of all requests for completions."""
        return [body for path, _, body in self.seen if path == "/v1/chat/completions"]

    def answer(self, path, body):
        """(status, body) of a request."""
        if path == "/v1/models":
            cards = [{"id": name} for name in self.models]
            return self.lists, {"data": cards}
        if path != "/v1/chat/completions":
            return 404, {"error": {"message": "no such path"}}
        if self.statuses:
            return self.statuses.pop(0), self.said
        if body["model"] not in self.models and "*" not in self.models:
            return 404, {"error": {"message": f"The model `{body['model']}` does not exist"}}
        for name, said in self.refuses.items():
            if name in body:
                return 400, {"error": {"message": said, "param": name}}
        count = 1 if self.ignores_n else body.get("n", 1)
        question = body["messages"][-1]["content"]
        choices = [
            {
                "index": i,
                "message": {"role": "assistant", "content": f"{question} {body.get('seed')} {i}"},
                "finish_reason": self.finish,
            }
            for i in range(count)
        ]
        usage = self.usage and {k: v * count for k, v in self.usage.items()}
        answer = {"object": "chat.completion", "choices": choices, "usage": usage}
        return 200, self.twist(answer) if self.twist else answer


class Answering(BaseHTTPRequestHandler):
    """What the handlers of these small servers share."""

    def read(self):
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def answer(self, status, body=b"", *, cut=None, **headers):
        """Send ``cut`` bytes of a body and end the connection, or all of it."""
        self.send_response(status)
        headers.setdefault("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[:cut])
        self.close_connection |= cut is not None

    def handle(self):
        with suppress(OSError):  # the asker has hung up
            super().handle()

    def log_message(self, *_): ...


class Handler(Answering):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        server, raw = self.server, self.read()
        if len(raw) < int(self.headers.get("Content-Length", 0)):  # the asker was killed
            return
        body = json.loads(raw) if raw else None
        with server.lock:
            headers = {name.lower(): value for name, value in self.headers.items()}
            server.seen.append((self.path, headers, body))
            server.busy += 1
            server.busiest = max(server.busy, server.busiest)
        if server.stalls and body:
            server.stalls.wait()
        told = dict(server.headers) if server.statuses and body else {}
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        with server.lock:
            server.busy -= 1
            status, answer = server.answer(self.path, body)
        if server.key and given != server.key:
            status, answer = 401, {"error": {"message": f"Incorrect API key provided: {given}"}}
        sent = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        if server.packed:
            sent, told["Content-Encoding"] = gzip.compress(sent), "gzip"
        self.answer(status, sent, cut=server.cut, **told)

    do_GET = do_POST


def author_of(
    server, parent, *, most, sampling, run=None, environment=None, stop_texts=(), **options
):
    """An author of the server, with its ``news``, in a folder of its own or that of its ``run``."""
    folder, news = parent / (run or f"{len([*parent.iterdir()])}"), []
    (folder / "north").mkdir(parents=True, exist_ok=True)
    settings = EngineSettings(
        most, most, node="north", folder=folder, sampling=sampling,
        notify=news.append, environment=environment, stop_texts=stop_texts,
    )  # fmt: skip
    options = {"url": server.url, "model": "teacher", "retries": 0} | options
    made = OpenAIOptions(**options).open(settings)
    made.news, made.round = news, 0
    return made


def stand_in_chat(kind=StandInChat):
    return serving(kind())


@contextmanager
def serving(server):
    """Have it answer, in a thread, until the end of the block."""
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server
    finally:
        if stalls := getattr(server, "stalls", None):
            stalls.set()
        server.shutdown()
        thread.join()
        server.server_close()
