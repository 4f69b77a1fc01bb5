"""A small server that takes models as the Hub does, for the real huggingface_hub client.

It shares no code with potluck. It creates repositories, says of each file whether it is regular or
large (LFS, basic transfer), and keeps commits. What it can do wrong is set as data:

    hub.token = "hf_other"          all other tokens are refused
    hub.mine = {"me"}               namespaces in which the token may write
    hub.statuses = [503]            answers to the next commits
    hub.loses = True                large files are confirmed and not kept: the commit is refused
    hub.full = True                 it has no room for large files
    hub.large = ()                  no file is large
    hub.stalls = Event()            commits wait for it
"""

import base64
import hashlib
import json
import re
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import yaml

from stand_in_chat import serving

OID = "0" * 40


class Refused(Exception):
    def __init__(self, status, text, **more):
        self.status, self.answer = status, {"error": text, **more}


class StandInHub(ThreadingHTTPServer):
    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.token, self.mine, self.large = "hf_right", {"me"}, (".safetensors",)
        self.statuses, self.loses, self.full, self.stalls = [], False, False, None
        self.repos, self.objects, self.seen, self.lock = {}, {}, [], threading.Lock()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def answer(self, method, path, body, token):
        with self.lock:
            self.seen.append((method, path))
        if found := re.fullmatch(r"/storage/(\w{64})", path):  # a signed address needs no token
            return self.put(found[1], body)
        if token != f"Bearer {self.token}":
            raise Refused(401, "Invalid credentials in Authorization header")
        if path == "/api/repos/create":
            return self.create(**json.loads(body))
        if path == "/api/validate-yaml":
            return self.validate(json.loads(body)["content"])
        if found := re.fullmatch(r"/(?:api/models/)?(\w+/[\w.-]+?)(?:\.git/info/lfs|)/(.*)", path):
            return self.of_repo(*found.groups(), body)
        raise Refused(404, "Not Found")

    def create(self, *, name, organization=None, type="model", visibility="public"):
        repo = f"{organization or 'me'}/{name}"
        if repo.split("/")[0] not in self.mine:
            raise Refused(403, "You don't have the rights to create a model under this namespace")
        with self.lock:
            if repo in self.repos:
                raise Refused(409, "You already created this model repo", url=f"{self.url}/{repo}")
            self.repos[repo] = {"type": type, "visibility": visibility, "files": {}, "commits": []}
        return {"url": f"{self.url}/{repo}", "name": repo}

    def validate(self, card):
        _, front, _ = card.split("---\n", 2)
        data = yaml.safe_load(front)
        if not isinstance(data.get("tags", []), list) or (
            "base_model" in data and not data["tags"]
        ):
            raise Refused(400, "wrong metadata")
        return {"errors": [], "warnings": []}

    def of_repo(self, repo, rest, body):
        if repo not in self.repos:
            raise Refused(404, "Repository not found")
        kept = self.repos[repo]
        match rest:
            case "preupload/main":
                files = [file["path"] for file in json.loads(body)["files"]]
                modes = ["lfs" if path.endswith(self.large) else "regular" for path in files]
                told = zip(files, modes, strict=True)
                return {
                    "files": [
                        {"path": path, "uploadMode": mode, "shouldIgnore": False}
                        for path, mode in told
                    ]
                }
            case "objects/batch":
                return {
                    "transfer": "basic",
                    "objects": [*map(self.place, json.loads(body)["objects"])],
                }
            case "commit/main":
                return self.commit(repo, kept, [json.loads(line) for line in body.splitlines()])
        raise Refused(404, "Not Found")

    def place(self, wanted):
        known = wanted["oid"] in self.objects
        href = f"{self.url}/storage/{wanted['oid']}"
        return wanted | ({} if known else {"actions": {"upload": {"href": href}}})

    def put(self, oid, body):
        if hashlib.sha256(body).hexdigest() != oid:
            raise Refused(400, "another content than was announced")
        if self.full:
            raise Refused(507, "no room")
        if not self.loses:
            self.objects[oid] = body
        return {}

    def commit(self, repo, kept, lines):
        if self.stalls:
            self.stalls.wait()
        if self.statuses:
            raise Refused(self.statuses.pop(0), "the Hub is busy")
        files = {}
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            if line["key"] == "lfsFile":
                if value["oid"] not in self.objects:
                    raise Refused(400, f"the file {value['path']} was not uploaded")
                files[value["path"]] = self.objects[value["oid"]]
        kept["files"] |= files
        kept["commits"].append(lines[0]["value"]["summary"])
        return {"commitUrl": f"{self.url}/{repo}/commit/{OID}", "commitOid": OID}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.partition("?")[0]
        try:
            status = 200
            answer = self.server.answer(self.command, path, body, self.headers["Authorization"])
        except Refused as refused:
            status, answer = refused.status, refused.answer
        sent = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        with suppress(OSError):  # the client was stopped
            self.wfile.write(sent)

    do_PUT = do_GET = do_POST

    def log_message(self, *_):
        pass


def stand_in_hub():
    return serving(StandInHub())
