"""A small server that answers as vLLM does, with a model folder of transformers behind it.

It shares no code with potluck: the sampling and the log-probabilities are its own, a forward
pass over the whole text for each token. What a server can do wrong is set as data:

    server.twist = lambda answer: ...    the JSON of /v1/completions is what this returns
    server.statuses = [500, 503]         the next answers, whatever is asked
    server.stale = True                  reloads are confirmed and not done
    server.mode = "processed_logprobs"   as --logprobs-mode
    server.stalls = Event()              completions wait for it
    server.cuts = 2                      so many answers end before they are complete
    server.drips_s = 0.05                each byte of an answer takes so long
    server.restarts_after = 2            so many completions later it is started anew: with the
                                         weights of its start and no adapters
    server.drops = 1                     then it closes so many connections without an answer
    server.decode = tokenizer.decode     makes the text in which it looks for stop texts
    server.pause_s = 0.5                 a request takes at least so long; others go on meanwhile
"""

import copy
import json
import threading
import time
from functools import cache
from http.server import ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from stand_in_chat import Answering, serving


class Refused(Exception):
    def __init__(self, status, text=""):
        self.status, self.text = status, text


@cache
def read(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


class StandIn(ThreadingHTTPServer):
    daemon_threads = False
    block_on_close = True

    def __init__(self, folder, name="tiny", max_model_len=64):
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder, self.name, self.max_model_len = str(folder), name, max_model_len
        self.network, self.adapters = self.load(self.folder), {}
        self.mode, self.stale, self.twist, self.statuses = "raw_logprobs", False, None, []
        self.stalls, self.key, self.asleep = None, "", set()
        self.cuts, self.drips_s = 0, 0.0
        self.restarts_after, self.drops, self.pause_s = None, 0, 0.0
        self.restarted, self.decode = False, None
        self.seen, self.lock = [], threading.Lock()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def load(self, folder):
        # That of its start, which many tests share, is read once; others have its architecture.
        network = copy.deepcopy(read(self.folder))
        if folder != self.folder:
            network.load_state_dict(load_file(f"{folder}/model.safetensors"), strict=False)
            network.tie_weights()
        return network

    def paths(self):
        return [path for path, _ in self.seen]

    def asked(self):
        """The bodies of all requests for completions."""
        return [body for path, body in self.seen if path == "/v1/completions"]

    def answer(self, path, query, body):
        match path:
            case "/v1/models":
                names = [self.name, *self.adapters]
                cards = [{"id": n, "max_model_len": self.max_model_len} for n in names]
                return {"object": "list", "data": cards}
            case "/v1/completions":
                if self.stalls:
                    self.stalls.wait()
                time.sleep(self.pause_s)
                with self.lock:
                    self.restart_in_time()
                    return self.completions(body)
            case "/v1/load_lora_adapter":
                if body["lora_name"] in self.adapters:
                    raise Refused(400, "has already been loaded")
                adapted = self.load(self.folder)
                adapted.load_adapter(body["lora_path"])
                self.adapters[body["lora_name"]] = adapted.eval()
            case "/v1/unload_lora_adapter":
                if not self.adapters.pop(body["lora_name"], None):
                    raise Refused(404, "cannot be found")
            case "/collective_rpc":
                if body["method"] != "reload_weights" or "weights" in self.asleep:
                    raise Refused(500, "no such method, or no memory for it")
                if not self.stale:
                    self.network = self.load(body["kwargs"]["weights_path"])
            case "/reset_prefix_cache":
                pass
            case "/sleep":
                self.asleep = {"weights", "kv_cache"}
                if query["level"] == ["2"]:
                    for parameter in self.network.parameters():
                        parameter.data.zero_()
            case "/wake_up":
                self.asleep -= set(query.get("tags", self.asleep))
            case _:
                raise Refused(404, "Not Found")
        return None

    def restart_in_time(self):
        if self.restarts_after == 0:
            self.network, self.adapters, self.restarted = self.load(self.folder), {}, True
        if self.restarts_after is not None:
            self.restarts_after -= 1
        if self.restarted and self.drops:
            self.drops -= 1
            raise ConnectionAbortedError

    def completions(self, body):
        if self.asleep:
            raise Refused(500, "asleep")
        if body["temperature"] == 0 and body["n"] > 1:
            raise Refused(400, f"n must be 1 when using greedy sampling, got {body['n']}.")
        if body["model"] != self.name and body["model"] not in self.adapters:
            raise Refused(404, f"The model `{body['model']}` does not exist.")
        network = self.adapters.get(body["model"], self.network)
        prompt, rows = body["prompt"], []
        generator = [torch.Generator().manual_seed(body["seed"] + i) for i in range(body["n"])]
        tokens, logps = write(network, body, prompt, generator, self.mode)
        for i in range(body["n"]):
            stop = next((t for t in range(len(tokens[i])) if self.ends(body, tokens[i], t)), None)
            end = len(tokens[i]) if stop is None else stop + 1
            names = [f"token_id:{id}" for id in tokens[i][:end]]
            rows.append({
                "index": i, "text": "", "finish_reason": "length" if stop is None else "stop",
                "stop_reason": None, "token_ids": tokens[i][:end], "prompt_token_ids": prompt,
                "logprobs": {"tokens": names, "token_logprobs": logps[i][:end]},
            })  # fmt: skip
        answer = {"id": "cmpl-1", "object": "text_completion", "choices": rows}
        return self.twist(answer) if self.twist else answer

    def ends(self, body, tokens, t):
        """Whether a row ends with token ``t``."""
        written = self.decode(tokens[: t + 1]) if body.get("stop") else ""
        return tokens[t] in body["stop_token_ids"] or any(
            e in written for e in body.get("stop", ())
        )


@torch.no_grad()
def write(network, body, prompt, generator, mode):
    """(token ids, log-probabilities) of each row, as long as may be asked for."""
    ids = torch.tensor([prompt] * body["n"])
    tokens, logps = [], []
    alive = torch.ones(body["n"], dtype=torch.bool)
    for _ in range(body["max_tokens"]):
        logits = network(input_ids=ids).logits[:, -1].double()
        raw = logits.log_softmax(dim=1)
        if body["temperature"]:
            logits = logits / body["temperature"]
        if 0 < body["top_k"] < logits.shape[1]:
            logits[logits < logits.topk(body["top_k"]).values[:, -1:]] = -torch.inf
        if body["top_p"] < 1:
            sorted_, request = logits.softmax(dim=1).sort(dim=1, descending=True)
            beyond = (sorted_.cumsum(dim=1) - sorted_) >= body["top_p"]
            logits[torch.zeros_like(beyond).scatter(1, request, beyond)] = -torch.inf
        processed = logits.log_softmax(dim=1)
        if body["temperature"]:
            p = processed.exp()
            picked = [p[i].multinomial(1, generator=die) for i, die in enumerate(generator)]
            token = torch.cat(picked)[:, None]
        else:
            token = logits.argmax(dim=1, keepdim=True)
        told = raw if mode == "raw_logprobs" else processed
        tokens.append(token)
        logps.append(told.gather(1, token))
        ids = torch.cat([ids, token], dim=1)
        alive &= ~torch.isin(token[:, 0], torch.tensor(body["stop_token_ids"]))
        if not alive.any():
            break
    return torch.cat(tokens, dim=1).tolist(), torch.cat(logps, dim=1).tolist()


class Handler(Answering):
    def do_POST(self):
        server, parts, raw = self.server, urlsplit(self.path), self.read()
        body = json.loads(raw) if raw else None
        server.seen.append((self.path, body))
        status, answer = 200, None
        try:
            if server.key and self.headers.get("Authorization") != f"Bearer {server.key}":
                raise Refused(401, "Unauthorized")
            if server.statuses:
                raise Refused(server.statuses.pop(0), "told to")
            answer = server.answer(parts.path, parse_qs(parts.query), body)
        except Refused as refused:
            status, answer = refused.status, refused.text.encode()
        except ConnectionAbortedError:
            self.close_connection = True
            return
        sent = json.dumps(answer).encode() if isinstance(answer, dict) else answer or b""
        cut, server.cuts = server.cuts > 0, max(0, server.cuts - 1)
        headers = {"Content-Length": str(len(sent) + cut)}
        if 300 <= status < 400:
            headers["Location"] = server.url
        self.answer(status, b"" if server.drips_s else sent, **headers)
        for at in range(len(sent) if server.drips_s else 0):
            self.wfile.write(sent[at : at + 1])
            time.sleep(server.drips_s)

    do_GET = do_POST


def stand_in(folder, **options):
    return serving(StandIn(folder, **options))
