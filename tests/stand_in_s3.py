"""A server that speaks as much of S3 as s3fs needs: whole objects, ranges, lists. In memory."""

import hashlib
from contextlib import contextmanager
from email.utils import formatdate
from http.server import ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import pytest

from stand_in_chat import Answering, serving

SIGNED = "AWS4-HMAC-SHA256 Credential=of-the-test/"


class _Handler(Answering):
    protocol_version = "HTTP/1.1"

    def _handle(self):
        data, url, objects = self.read(), urlsplit(self.path), self.server.objects
        path, query = unquote(url.path).lstrip("/"), parse_qs(url.query)
        self.server.asked.append((self.command, path))
        if not self.headers.get("Authorization", "").startswith(SIGNED):
            self.answer(403, b"<Error><Code>AccessDenied</Code></Error>")
        elif self.command == "PUT":
            if self.headers.get("Content-Encoding") == "aws-chunked":
                data = _unchunked(data)
            objects[path] = data, formatdate(usegmt=True)
            self.answer(200, ETag=_tag(data))
        elif self.command == "DELETE":
            objects.pop(path, None)
            self.answer(204)
        elif "list-type" in query:
            bucket, prefix = path.rstrip("/"), query.get("prefix", [""])[0]
            self.answer(
                200, _listed(objects, bucket, prefix), **{"Content-Type": "application/xml"}
            )
        elif path not in objects:
            self.answer(404, b"<Error><Code>NoSuchKey</Code><Message>none</Message></Error>")
        else:
            whole, written = objects[path]
            about = {"ETag": _tag(whole), "Last-Modified": written}
            if found := self.headers.get("Range"):
                first, last = found.removeprefix("bytes=").split("-")
                part = whole[int(first) : int(last) + 1]
                about["Content-Range"] = f"bytes {first}-{int(first) + len(part) - 1}/{len(whole)}"
                self.answer(206, part, **about)
            else:
                self.answer(200, whole, **about)

    do_GET = do_PUT = do_HEAD = do_DELETE = _handle


def _tag(data):
    return f'"{hashlib.md5(data).hexdigest()}"'


def _unchunked(data):
    whole = b""
    while data:
        head, _, data = data.partition(b"\r\n")
        size = int(head.split(b";")[0], 16)
        if not size:
            break
        whole, data = whole + data[:size], data[size + 2 :]
    return whole


def _listed(objects, bucket, prefix):
    """The files, and folders, right below the prefix."""
    start, found = f"{bucket}/{prefix}", {}
    for path in sorted(each for each in objects if each.startswith(start)):
        name, is_below, _ = path.removeprefix(start).partition("/")
        key = escape(prefix + name)
        found[name] = (
            f"<CommonPrefixes><Prefix>{key}/</Prefix></CommonPrefixes>"
            if is_below
            else f"<Contents><Key>{key}</Key><Size>{len(objects[path][0])}</Size></Contents>"
        )
    return f"<ListBucketResult>{''.join(found.values())}</ListBucketResult>".encode()


@contextmanager
def stand_in_s3():
    """Yield the server; what this process, and those it starts, know of S3 leads to it."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.objects, server.asked, server.daemon_threads = {}, [], True
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "of-the-test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        with serving(server):
            yield server
