"""Downloads, against a small hub on this machine; the network is touched only when asked."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import tiny
from conftest import cli

from spec_cli.config import resolve
from spec_cli.errors import UsageError
from spec_cli.hub import choose_draft, choose_file, shards_of

COMMIT = "0123456789012345678901234567890123456789"


class Hub:
    """What huggingface_hub asks for: the files of a repository, a file's head, its bytes or a part of them."""

    def __init__(self, repos: dict[str, dict[str, bytes]]) -> None:
        hub = self
        self.asked: list[tuple[str, str, str]] = []
        self.cut: int | None = None  # close the connection after so many bytes, once
        self.token = ""

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
                hub.token = self.headers.get("Authorization", hub.token)
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
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    letters = tiny.clock(tmp_path / "a.gguf").read_bytes()
    always_j = tiny.clock(tmp_path / "j.gguf", always=tiny.A + 9).read_bytes()
    files = {
        "README.md": b"x",
        "clock-Q4_K_M.gguf": letters,
        "clock-Q8_0.gguf": always_j,
        "mmproj-clock-Q4_K_M.gguf": b"no",
    }
    large = {"clock-Q8_0.gguf": letters + bytes(30 << 20)}
    one = Hub(
        {
            "me/clock-GGUF": files,
            "me/large": large,
            "me/draft": {"d-Q8_0.gguf": always_j},
            "me/empty": {"README.md": b"x"},
        }
    )
    yield one
    one.close()


@pytest.fixture
def world(hub: Hub, tmp_path: Path) -> dict[str, str]:
    """The environment of a person whose hub is this one."""
    home = tmp_path / "home"
    return {"HF_ENDPOINT": hub.url, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}


def generate(world: dict[str, str], *args: object) -> Any:
    return cli("generate", *args, "-p", "abc", "-n", 3, "-t", 1, "--temp", 0, env=world)


def test_a_model_is_downloaded_once_and_by_its_quantisation(hub: Hub, world: dict[str, str]) -> None:
    """Without a tag Q4_K_M; a second run downloads nothing; offline the network is not touched at all."""
    assert generate(world, "-hf", "me/clock-GGUF", "-hft", "secret").stdout == b"def\n"
    assert hub.token == "Bearer secret"
    assert any(method == "GET" and path.endswith("clock-Q4_K_M.gguf") for method, path, _ in hub.asked)
    assert generate(world, "-hf", "me/clock-GGUF:q8_0").stdout == b"jjj\n"
    hub.asked.clear()
    done = generate(world, "-hf", "me/clock-GGUF")
    assert (done.returncode, done.stdout) == (0, b"def\n")
    assert not any(method == "GET" and path.endswith(".gguf") for method, path, _ in hub.asked)
    hub.asked.clear()
    assert generate(world, "-hf", "me/clock-GGUF", "--offline").stdout == b"def\n"
    assert (
        generate({**world, "LLAMA_ARG_OFFLINE": "1"}, "-hf", "me/clock-GGUF", "-hff", "clock-Q8_0.gguf").stdout
        == b"jjj\n"
    )
    assert hub.asked == []


def test_a_draft_comes_from_its_own_repository(hub: Hub, world: dict[str, str]) -> None:
    done = generate(world, "-hf", "me/clock-GGUF", "-hfd", "me/draft")
    assert done.stdout == b"def\n"
    assert b"speculation: draft-simple (from -hfd/--hf-repo-draft), n_max 3" in done.stderr
    assert b"-hf me/clock-GGUF: clock-Q4_K_M.gguf" in done.stderr
    done = generate(world, "-hf", "me/clock-GGUF", "-hfd", "me/clock-GGUF", "-md", "clock-Q4_K_M.gguf")
    assert done.stdout == b"def\n"
    assert b"draft acceptance rate = 1.0" in done.stderr


def test_an_interrupted_download_goes_on_where_it_stopped(hub: Hub, world: dict[str, str]) -> None:
    hub.cut = 25 << 20  # the client writes 10 MiB at a time
    generate(world, "-hf", "me/large")
    done = generate(world, "-hf", "me/large")
    assert done.stdout == b"def\n"
    assert any(re.fullmatch("bytes=[1-9][0-9]+-", part) for method, _, part in hub.asked if method == "GET")


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("-hf", "me/clock-GGUF:Q5_K_S"), 3, "has no model file Q5_K_S among (GGUF files: clock-Q4_K_M.gguf"),
        (("-hf", "me/empty"), 3, "me/empty has no model file (GGUF files: none)"),
        (("-hf", "me/nothing"), 3, "-hf/--hf-repo: me/nothing: "),
        (("-hf", "clock"), 2, "'clock' is not USER/REPO"),
        (("-hf", "me/clock-GGUF", "--offline"), 3, "-hf/--hf-repo: me/clock-GGUF: "),
        (("-hff", "clock-Q8_0.gguf"), 2, "-hff/--hf-file: needs -hf USER/REPO"),
        (("-hf", "me/clock-GGUF", "-m", "x.gguf"), 2, "-m/--model and -hf/--hf-repo: give one of them"),
    ],
)
def test_what_cannot_be_had_is_one_line(world: dict[str, str], args: tuple[str, ...], code: int, words: str) -> None:
    done = generate(world, *args)
    assert (done.returncode, done.stdout) == (code, b"")
    assert words in done.stderr.decode().splitlines()[-1]


def test_nothing_is_asked_of_the_network_by_other_runs(hub: Hub, world: dict[str, str], models: Path) -> None:
    assert generate(world, "-m", models / "clock.gguf").stdout == b"def\n"
    assert hub.asked == []


@pytest.mark.parametrize(
    ("names", "tag", "right"),
    [
        (["a-Q8_0.gguf", "a-Q4_K_M.gguf"], "", "a-Q4_K_M.gguf"),
        (["a-Q8_0.gguf", "a-Q2_K.gguf"], "", "a-Q8_0.gguf"),
        (["b.gguf", "a.gguf", "README.md"], "", "a.gguf"),
        (["a-Q4_K_M.gguf", "a-IQ4_XS.gguf"], "iq4_xs", "a-IQ4_XS.gguf"),
        (["a-Q4_K_M.gguf", "a-Q4_K_S.gguf"], "Q4_K", None),
        (
            ["mtp-a-Q4_K_M.gguf", "a-Q4_K_M-00002-of-00002.gguf", "a-Q4_K_M-00001-of-00002.gguf"],
            "",
            "a-Q4_K_M-00001-of-00002.gguf",
        ),
        (["imatrix.gguf", "mmproj-F16.gguf"], "", None),
    ],
)
def test_the_file_is_chosen_as_llama_cpp_does(names: list[str], tag: str, right: str | None) -> None:
    assert choose_file(names, tag) == right


@pytest.mark.parametrize(
    ("names", "tag", "right"),
    [
        (["a-Q4_K_M.gguf", "sub/eagle3-a-F16.gguf", "mtp-a-Q8_0.gguf"], "", "mtp-a-Q8_0.gguf"),
        (["a-Q4_K_M.gguf", "sub/eagle3-a-F16.gguf", "mmproj-a.gguf"], "", "sub/eagle3-a-F16.gguf"),
        (["mtp-a-Q4_0.gguf", "mtp-a-Q8_0.gguf"], "q8_0", "mtp-a-Q8_0.gguf"),
        (["mtp-a-Q4_0.gguf", "a-Q8_0.gguf"], "Q8_0", "a-Q8_0.gguf"),
        (["dflash-a-Q8_0.gguf", "a-Q8_0.gguf"], "", "a-Q8_0.gguf"),
    ],
)
def test_a_draft_repository_gives_its_head_first(names: list[str], tag: str, right: str) -> None:
    assert choose_draft(names, tag) == right


def test_all_shards_are_taken() -> None:
    assert shards_of("x/a-00001-of-00003.gguf") == [f"x/a-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    assert shards_of("a.gguf") == ["a.gguf"]


def test_the_closer_one_of_a_file_and_a_repository_counts(tmp_path: Path) -> None:
    env = {"SPEC_CLI_CONFIG": "", "LLAMA_ARG_HF_REPO": "a/b"}
    assert resolve({}, env).hf_repo == "a/b"
    given = resolve({"model": str(tmp_path / "x.gguf")}, env)
    assert (given.hf_repo, given.model) == (None, tmp_path / "x.gguf")
    with pytest.raises(UsageError, match="give one of them"):
        resolve({}, {**env, "LLAMA_ARG_MODEL": "x.gguf"})
