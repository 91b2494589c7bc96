"""A server that answers what huggingface_hub asks, with faults on request.

Its content folder holds models/OWNER/NAME/…, datasets/OWNER/NAME/… and raw/… (files of other addresses, served below
/raw/). Answered as the hub does: / · /api/{models,datasets}/ID, .../revision/REV and .../tree/REV ·
[/datasets]/ID/resolve/REV/FILE (files above 1 MB or of an LFS suffix are redirected to /cdn/SHA256 on another host
name) · /api/repos/create, /api/models/ID/preupload/main and .../commit/main, which write into the content folder.
Every repository exists at "main", at a commit made from its content, and at any other 40 hex digits that are asked for,
so that pinned commits exist.

Faults are rules, the first match wins:
    {"match": "resolve/.*safetensors", "method": "GET", "status": 500, "times": 3, "headers": {"Retry-After": "2"}}
    {"match": "...", "hang": 60}              # accept, answer nothing for so many seconds
    {"match": "...", "drop": True}            # close the connection without an answer
    {"match": "...", "drop_after": 200000}    # close the connection in the middle of the body
    {"match": "...", "corrupt": True}         # right length, wrong bytes
    {"match": "...", "truncate": 1000}        # a whole answer that is shorter, its Content-Length too
    {"match": "...", "rate": 50000}           # bytes a second
    {"match": "...", "gated": True}           # 401 with X-Error-Code: GatedRepo
    {"match": "...", "body": "<html>"}        # 200 and something else
    {"match": "...", "xet": HASH}             # say that Xet has the file
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
import time
from collections.abc import Mapping
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

_LFS = re.compile(r"\.(safetensors|bin|gz|parquet|tar|onnx|h5|msgpack)$")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_BLOCK = 1 << 16
_DATE = "2024-02-19T11:06:12.000Z"

Fault = dict[str, Any]


class File:
    """A file of a repository."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name

    @cached_property
    def size(self) -> int:
        return self.path.stat().st_size

    @cached_property
    def sha256(self) -> str:
        with self.path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()

    @cached_property
    def git_sha1(self) -> str:
        total = hashlib.sha1(b"blob %d\0" % self.size)
        with self.path.open("rb") as stream:
            while block := stream.read(_BLOCK):
                total.update(block)
        return total.hexdigest()

    @property
    def lfs(self) -> bool:
        return bool(_LFS.search(self.name)) or self.size > 1_000_000


class Repo:
    """A folder of files, served as a repository."""

    def __init__(self, id: str, folder: Path) -> None:
        self.id = id
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        self.files = {name: File(path, name) for path in paths for name in (path.relative_to(folder).as_posix(),)}

    @cached_property
    def main(self) -> str:
        sizes = repr([(name, file.size, file.path.stat().st_mtime_ns) for name, file in self.files.items()])
        return hashlib.sha1(f"{self.id} {sizes}".encode()).hexdigest()

    def commit(self, revision: str | None) -> str | None:
        """Return the commit of a revision; None if there is none."""
        if revision in (None, "main"):
            return self.main
        return revision if revision and _COMMIT.fullmatch(revision) else None

    def about(self, commit: str, blobs: bool) -> dict[str, Any]:
        return {
            "_id": self.main[:24], "id": self.id, "modelId": self.id, "author": self.id.partition("/")[0],
            "sha": commit, "lastModified": _DATE, "createdAt": _DATE, "private": False, "gated": False,
            "disabled": False, "downloads": 1, "likes": 1, "tags": [],
            "siblings": [_sibling(file) if blobs else {"rfilename": name} for name, file in self.files.items()],
        }  # fmt: skip

    def tree(self) -> list[dict[str, Any]]:
        folders = {str(parent) for name in self.files for parent in Path(name).parents if str(parent) != "."}
        rows = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": folder} for folder in sorted(folders)]
        for name, file in self.files.items():
            row: dict[str, Any] = {"type": "file", "oid": file.git_sha1, "size": file.size, "path": name}
            if file.lfs:
                row["lfs"] = {"oid": file.sha256, "size": file.size, "pointerSize": 134}
            rows.append(row)
        return rows


def _sibling(file: File) -> dict[str, Any]:
    about: dict[str, Any] = {"rfilename": file.name, "size": file.size, "blobId": file.git_sha1}
    if file.lfs:
        about["lfs"] = {"sha256": file.sha256, "size": file.size, "pointerSize": 134}
    return about


class FakeHub:
    """The server; `with FakeHub(content) as hub:` runs it in threads of this process, on a port of its own.

    Args:
        content: Folder of repositories.
        aliases: Former names of models, which are redirected (307) → present ones.
    """

    def __init__(self, content: Path, aliases: Mapping[str, str] | None = None) -> None:
        self.content, self.aliases = content, aliases or {}
        self.log: list[str] = []
        self.lock = threading.Lock()
        self._faults: list[Fault] = []
        self.blobs: dict[str, File] = {}
        self.load()
        handler = type("BoundHandler", (Handler,), {"hub": self})
        self.server = _Server(("127.0.0.1", 0), handler)

    def __enter__(self) -> FakeHub:
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    @property
    def port(self) -> int:
        return int(self.server.server_address[1])

    @property
    def endpoint(self) -> str:
        """What HF_ENDPOINT is to be."""
        return f"http://127.0.0.1:{self.port}"

    def load(self) -> None:
        """Read the content folder anew."""
        self.repos = {
            (kind, id): Repo(id, folder)
            for kind in ("models", "datasets")
            for folder in sorted(self.content.glob(f"{kind}/*/*"))
            for id in (f"{folder.parent.name}/{folder.name}",)
        }

    def fail(self, *rules: Fault) -> None:
        """Set the faults, none if none are given, and empty the log."""
        with self.lock:
            self._faults = [dict(rule) for rule in rules]
            self.log.clear()

    def fault(self, method: str, path: str) -> Fault:
        """Return the rule that a request meets; an empty one where none does."""
        with self.lock:
            for rule in self._faults:
                if rule.get("method", method) == method and re.search(rule["match"], path) and rule.get("times", 1) > 0:
                    if "times" in rule:
                        rule["times"] -= 1
                    return rule
        return {}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients that go away are what this server is for."""


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"
    hub: ClassVar[FakeHub]

    def log_message(self, *_: object) -> None:
        """Requests are kept in `FakeHub.log`."""

    def do_POST(self) -> None:
        """Make a repository, or take a commit whose files are all in its body; as the hub does for small files."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = urlsplit(self.path).path
        rule = self.hub.fault("POST", path)
        self.hub.log.append(f"{time.strftime('%H:%M:%S')} POST {path} {rule or ''}")
        if self.refuse(rule):
            return None
        kind = {"Content-Type": "application/json"}
        if path == "/api/validate-yaml":  # of a model card
            return self.answer(200, b'{"warnings": [], "errors": []}', kind)
        if path == "/api/repos/create":
            asked = json.loads(body)
            id = f"{asked.get('organization') or 'me'}/{asked['name']}"
            (self.hub.content / "models" / id).mkdir(parents=True)
            self.hub.load()
            return self.answer(200, json.dumps({"url": f"{self.hub.endpoint}/{id}"}).encode(), kind)
        if found := re.fullmatch(r"/api/models/(.+)/preupload/main", path):
            files = [{**file, "uploadMode": "regular", "shouldIgnore": False} for file in json.loads(body)["files"]]
            return self.answer(200, json.dumps({"files": files}).encode(), kind)
        if found := re.fullmatch(r"/api/models/(.+)/commit/main", path):
            for line in body.splitlines():
                if (change := json.loads(line))["key"] == "file":
                    file = self.hub.content / "models" / found[1] / change["value"]["path"]
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(base64.b64decode(change["value"]["content"]))
            self.hub.load()
            made = self.hub.repos["models", found[1]].main
            answer = {"commitUrl": f"{self.hub.endpoint}/{found[1]}/commit/{made}", "commitOid": made}
            return self.answer(200, json.dumps({**answer, "pullRequestUrl": None}).encode(), kind)
        return self.error(404, "Not Found")

    def do_HEAD(self) -> None:
        self.route("HEAD")

    def do_GET(self) -> None:
        self.route("GET")

    def route(self, method: str) -> None:
        parts = urlsplit(self.path)
        path = unquote(parts.path)
        full = f"{path}?{parts.query}" if path.startswith("/cdn/") else path
        rule = self.hub.fault(method, full)
        notes = [self.headers.get("Range", ""), "authorized" if self.headers.get("Authorization") else ""]
        self.hub.log.append(" ".join(filter(None, [time.strftime("%H:%M:%S"), method, full, *notes, str(rule or "")])))
        if not self.refuse(rule):
            self.serve(method, path, parts.query, rule)

    def refuse(self, rule: Fault) -> bool:
        """Meet a fault that takes the place of the answer; return whether it did."""
        if "hang" in rule or "drop" in rule:
            time.sleep(rule.get("hang", 0))
            self.close_connection = True
        elif rule.get("gated"):
            self.error(401, "Access to model is restricted.", {"X-Error-Code": "GatedRepo"})
        elif "status" in rule:
            self.error(rule["status"], "made to fail", rule.get("headers", {}))
        elif "body" in rule:
            self.answer(200, rule["body"].encode())
        return bool({"hang", "drop", "gated", "status", "body"} & set(rule))

    def serve(self, method: str, path: str, query: str, rule: Fault) -> None:
        if path == "/":
            return self.answer(200, b"fake hub")
        if found := re.fullmatch(r"/cdn/([0-9a-f]{64})", path):
            return self.file(self.hub.blobs[found[1]], method, rule, {})
        if found := re.fullmatch(r"/raw/(.+)", path):
            return self.raw(found[1], method, rule)
        if found := re.fullmatch(r"/api/(models|datasets)/(.+?)(?:/(revision|tree)/([^/]+)(?:/(.*))?)?", path):
            return self.api(found[1], found[2], found[3], found[4], query)
        if found := re.fullmatch(r"/(?:(datasets)/)?(.+?)/resolve/([^/]+)/(.+)", path):
            return self.resolve(found[1] or "models", found[2], found[3], found[4], method, rule)
        return self.error(404, "Not Found")

    def repo(self, kind: str, id: str) -> Repo | None:
        """Return a repository; None, and the answer is given, where the name is another's or nobody's."""
        if kind == "models" and id in self.hub.aliases:
            self.answer(307, b"", {"Location": self.path.replace(f"/{id}", f"/{self.hub.aliases[id]}", 1)})
            return None
        repo = self.hub.repos.get((kind, id))
        if repo is None:
            # The hub does not tell a missing repository from a private one: 401 without a token.
            self.error(401, "Invalid username or password.", {"X-Error-Code": "RepoNotFound"})
        return repo

    def api(self, kind: str, id: str, what: str | None, revision: str | None, query: str) -> None:
        repo = self.repo(kind, id)
        if repo is None:
            return None
        commit = repo.commit(revision)
        if commit is None:
            return self.error(404, f"Invalid rev id: {revision}", {"X-Error-Code": "RevisionNotFound"})
        headers = {"Content-Type": "application/json"}
        if what != "tree":
            return self.answer(200, json.dumps(repo.about(commit, "blobs" in query)).encode(), headers)
        return self.answer(200, json.dumps(repo.tree()).encode(), headers)

    def resolve(self, kind: str, id: str, revision: str, name: str, method: str, rule: Fault) -> None:
        repo = self.repo(kind, id)
        if repo is None:
            return None
        commit = repo.commit(revision)
        if commit is None:
            return self.error(404, f"Invalid rev id: {revision}", {"X-Error-Code": "RevisionNotFound"})
        headers, file = {"X-Repo-Commit": commit}, repo.files.get(name)
        if file is None:
            return self.error(404, "Entry not found", {**headers, "X-Error-Code": "EntryNotFound"})
        if file.lfs and not rule:
            self.hub.blobs[file.sha256] = file
            linked = {"X-Linked-Size": str(file.size), "X-Linked-ETag": f'"{file.sha256}"'}
            # Another host name than the hub's, as its content network has.
            where = f"http://localhost:{self.hub.port}/cdn/{file.sha256}?name={name.rpartition('/')[2]}"
            return self.answer(302, b"", {**headers, **linked, "Location": where})
        if "xet" in rule:
            headers |= {
                "X-Xet-Hash": rule["xet"],
                "X-Xet-Refresh-Route": f"{self.hub.endpoint}/xet",
                "X-Xet-Cas-Url": "none",
            }
        return self.file(file, method, rule, headers)

    def raw(self, name: str, method: str, rule: Fault) -> None:
        path = (self.hub.content / "raw" / name).resolve()
        if not path.is_relative_to((self.hub.content / "raw").resolve()) or not path.is_file():
            return self.error(404, "Not Found")
        return self.file(File(path, name), method, rule, {})

    def file(self, file: File, method: str, rule: Fault, headers: dict[str, str]) -> None:
        start, size, status = 0, rule.get("truncate", file.size), 200
        if found := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or ""):
            if int(found[1]) >= size:
                return self.error(416, "Range Not Satisfiable", {"Content-Range": f"bytes */{size}"})
            start, status = int(found[1]), 206
            headers = {**headers, "Content-Range": f"bytes {start}-{size - 1}/{size}"}
        tag = file.sha256 if file.lfs else file.git_sha1
        self.send_response(status)
        for key, value in {**headers, "ETag": f'"{tag}"', "Accept-Ranges": "bytes"}.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(size - start))
        self.end_headers()
        return self.body(file, start, size, rule) if method == "GET" else None

    def body(self, file: File, start: int, size: int, rule: Fault) -> None:
        sent, began, left = 0, time.monotonic(), size - start
        with file.path.open("rb") as stream:
            stream.seek(start)
            while left and (block := stream.read(min(4096 if "rate" in rule else _BLOCK, left))):
                if "drop_after" in rule and sent + len(block) > rule["drop_after"]:
                    self.wfile.write(block[: max(0, rule["drop_after"] - sent)])
                    self.wfile.flush()
                    self.close_connection = True
                    self.connection.shutdown(2)
                    return
                if rule.get("corrupt"):
                    block = bytes(byte ^ 1 for byte in block[:64]) + block[64:]
                self.wfile.write(block)
                sent, left = sent + len(block), left - len(block)
                if "rate" in rule:
                    time.sleep(max(0.0, sent / rule["rate"] - (time.monotonic() - began)))

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def error(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        body = json.dumps({"error": message}).encode()
        self.answer(status, body, {"X-Error-Message": message, "Content-Type": "application/json", **(headers or {})})
