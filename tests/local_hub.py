"""A hub of model files on this machine."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "0123456789012345678901234567890123456789"


class Hub:
    """What huggingface_hub asks for: the files of a repository, a file's head, its bytes or a part of them."""

    def __init__(self, repos: dict[str, dict[str, bytes]]) -> None:
        hub = self
        self.asked: list[tuple[str, str, str]] = []
        self.repos = repos
        self.cut: int | None = None  # close the connection after so many bytes, once
        self.token = ""
        self.refusals: dict[str, tuple[int, dict[str, str], bytes]] = {}  # by a pattern of "METHOD PATH"

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None: ...

            def answer(self, code: int, body: bytes, headers: dict[str, str], send: bool) -> None:
                self.send_response(code)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if send and hub.cut is not None and len(body) > hub.cut:
                    self.wfile.write(body[: hub.cut])
                    hub.cut = None
                    self.close_connection = True
                elif send:
                    self.wfile.write(body)

            def handle_one(self, send: bool) -> None:
                hub.asked.append((self.command, self.path, self.headers.get("Range", "")))
                hub.token = self.headers.get("Authorization", "")
                for pattern, (status, more, words) in hub.refusals.items():
                    if re.search(pattern, f"{self.command} {self.path}"):
                        return self.answer(status, words, more, send)
                if found := re.match(r"/api/models/([^/]+/[^/?]+)", self.path):
                    files = repos.get(found[1])
                    if files is None:
                        return self.answer(404, b"{}", {"X-Error-Code": "RepoNotFound"}, send)
                    told = {"id": found[1], "sha": COMMIT, "siblings": [{"rfilename": n} for n in files]}
                    tree = [{"type": "file", "path": n, "size": len(d), "oid": "0"} for n, d in files.items()]
                    body = json.dumps(tree if "/tree/" in self.path else told).encode()
                    return self.answer(200, body, {"Content-Type": "application/json"}, send)
                found = re.match(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", self.path)
                data = repos.get(found[1], {}).get(found[2]) if found else None
                if data is None:
                    return self.answer(404, b"", {"X-Error-Code": "EntryNotFound"}, send)
                headers = {
                    "ETag": f'"{hashlib.sha256(data).hexdigest()}"',
                    "X-Repo-Commit": COMMIT,
                    "Accept-Ranges": "bytes",
                }
                if part := re.match(r"bytes=(\d+)-", self.headers.get("Range", "")):
                    start = int(part[1])
                    headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
                    return self.answer(206, data[start:], headers, send)
                return self.answer(200, data, headers, send)

            def do_GET(self) -> None:
                self.handle_one(send=True)

            def do_HEAD(self) -> None:
                self.handle_one(send=False)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
