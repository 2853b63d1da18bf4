"""What stands between a person and a file of the hub is said in one line, with what to do about it."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import pytest
from local_hub import Hub

from spec_cli.errors import FileError
from spec_cli.settings import Settings

pytestmark = pytest.mark.long

Fetch = Callable[..., Settings]
GATED = {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access to model me/clock-GGUF is restricted."}
ABSENT = {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"}
HTML = {"Content-Type": "text/html"}
ALL, FILES = ".", "/resolve/"


@pytest.mark.parametrize(
    ("where", "status", "headers", "body", "token", "words"),
    [
        (FILES, 403, GATED, b"", None, "is gated: ask for access at {hub}/me/clock-GGUF with an account, and give its"),
        (FILES, 403, GATED, b"", "hf_abcdef", "at {hub}/me/clock-GGUF with the account of your token (Access to model"),
        (ALL, 401, GATED, b"", None, "the repository is gated"),
        (ALL, 401, {}, b"", None, "{hub} has no such repository, or it is private and no token was given (HF_TOKEN"),
        (ALL, 401, {"X-Error-Message": "Invalid credentials in Authorization header"}, b"", "hf_abcdef",
         "or it is private and the token is not valid for it (Invalid credentials in Authorization header)"),
        (ALL, 404, ABSENT, b"", None, "{hub} has no such repository, or it is private and no token was given"),
        (FILES, 404, ABSENT, b"", "hf_abcdef", "has no such repository, or it is private and the token is not valid"),
        (FILES, 404, {"X-Error-Code": "EntryNotFound"}, b"", None, "the file is listed and not there"),
        (ALL, 404, HTML, b"<html>", None, "{hub} says 404 Not Found"),
        (ALL, 403, {"X-Error-Message": "Access to this resource is disabled."}, b"", None,
         "{hub} says 403 Forbidden (Access to this resource is disabled.)"),
        (ALL, 403, {}, b'{"error": "no scope\\nfor it"}', "hf_abcdef", "{hub} says 403 Forbidden (no scope for it)"),
        (ALL, 429, {"Retry-After": "300"}, b"", None, "429, too many requests (with a token, HF_TOKEN or -hft, it"),
        (FILES, 429, {"Retry-After": "300"}, b"", "hf_abcdef", "429, too many requests: try again in 300 s; --offline"),
        (ALL, 429, {"RateLimit": '"api";r=0;t=55'}, b"", "hf_abcdef", "try again in 55 s"),
        (ALL, 429, {}, b'{"error": "Rate limit exceeded"}', "hf_abcdef", "try again later; --offline uses what is"),
        (ALL, 503, HTML, b"<html>", None, "{hub} says 503 Service Unavailable: try again later; --offline uses"),
        (FILES, 500, {}, b"", None, "{hub} says 500 Internal Server Error: try again later"),
        (ALL, 599, {}, b"", None, "{hub} says 599: try again later"),
        (ALL, 200, HTML, b"<html>Log in to the airport</html>", None, "{hub} does not answer as Hugging Face does"),
        (ALL, 200, {}, b"{}", None, "{hub} does not answer as Hugging Face does (HF_ENDPOINT)"),
    ],
)  # fmt: skip
def test_what_the_hub_says_reaches_the_person_at_once(
    hub: Hub, fetch: Fetch, capfd: pytest.CaptureFixture[str], where: str, status: int, headers: dict[str, str],
    body: bytes, token: str | None, words: str,
) -> None:  # fmt: skip
    """The page of a gated repository, what a 401 means, when to try again: pytorch/torchchat#477, mlverse/hfhub#11."""
    hub.refusals[where] = status, headers, body
    began = time.monotonic()
    with pytest.raises(FileError) as caught:
        fetch("me/clock-GGUF", hf_token=token)
    text = str(caught.value)
    assert text.startswith("-hf/--hf-repo: me/clock-GGUF: ")
    assert words.format(hub=hub.url) in text
    assert "\n" not in text
    assert "Request ID" not in text
    assert time.monotonic() - began < 10  # the library would try for 23 s, or wait for five times 301
    assert capfd.readouterr() == ("", "")


def test_a_hub_that_is_not_there_is_named_at_once(
    hub: Hub, fetch: Fetch, capfd: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    """No raw lines of its retries, which came before it, and no 23 s without a word."""
    silent = socket.create_server(("127.0.0.1", 0))  # takes connections, and says nothing
    dead = socket.create_server(("127.0.0.1", 0))
    gone = f"http://127.0.0.1:{dead.getsockname()[1]}"
    dead.close()
    at = f"http://127.0.0.1:{silent.getsockname()[1]}"
    began = time.monotonic()
    for url, why in (
        (gone, "Connection refused"), (at, "no answer in time"), ("http://hub.invalid", ""), ("hub.example", ""),
    ):  # fmt: skip
        for settings in ({}, {"hf_file": "clock-Q8_0.gguf"}):
            with pytest.raises(FileError) as caught:
                fetch("me/clock-GGUF", url, **settings)
            assert f"me/clock-GGUF: {url} cannot be reached: {why}" in str(caught.value)
            assert str(caught.value).endswith("; --offline uses what is cached")
    silent.close()
    assert time.monotonic() - began < 15
    assert capfd.readouterr() == ("", "")


def test_a_file_that_is_cached_needs_no_answer_but_the_list(hub: Hub, fetch: Fetch) -> None:
    path = fetch("me/clock-GGUF").model
    hub.refusals[FILES] = 503, {}, b""
    assert fetch("me/clock-GGUF").model == path


def test_a_broken_download_is_gone_on_with_in_our_own_words(
    hub: Hub, fetch: Fetch, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    hub.cut, lines = 25 << 20, []
    path = fetch("me/large", lines=lines).model
    assert path is not None
    assert path.stat().st_size > 30 << 20
    assert lines == ["-hf me/large: clock-Q8_0.gguf", "-hf me/large: a request failed: trying again"]
    assert capfd.readouterr() == ("", "")


def test_a_wait_that_the_hub_asks_for_is_said(
    hub: Hub, fetch: Fetch, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where only the file itself is refused, huggingface_hub waits as long as it is told, in silence."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    hub.refusals["GET /me.*/resolve/"] = 429, {"Retry-After": "300"}, b""
    lines: list[str] = []
    with pytest.raises(FileError, match=r"says 429, too many requests.*: try again in 300 s"):
        fetch("me/clock-GGUF", lines=lines)
    assert lines[1:] == ["-hf me/clock-GGUF: a request failed: trying again in 301 s"] * 5
    assert capfd.readouterr() == ("", "")


def test_offline_says_what_is_not_cached_in_our_own_words(hub: Hub, fetch: Fetch, tmp_path: Path) -> None:
    """No argument of a Python function is for the person at the command line."""
    with pytest.raises(FileError) as caught:
        fetch("me/clock-GGUF", offline=True)
    cache = tmp_path / "cache"
    right = f"-hf/--hf-repo: me/clock-GGUF is not in the cache ({cache}): run it once without --offline"
    assert str(caught.value) == right
    fetch("me/clock-GGUF")
    for settings, what in (({}, "model file Q8_0"), ({"hf_file": "clock-Q8_0.gguf"}, "file clock-Q8_0.gguf")):
        with pytest.raises(FileError) as caught:
            fetch("me/clock-GGUF" if settings else "me/clock-GGUF:Q8_0", offline=True, **settings)
        assert str(caught.value) == (
            f"-hf/--hf-repo: the cache of me/clock-GGUF has no {what} (GGUF files: clock-Q4_K_M.gguf):"
            " run it once without --offline"
        )
    with pytest.raises(FileError, match=r"^-hf/--hf-repo: a\.\.b/c: Cannot have -- or \.\."):
        fetch("a..b/c", offline=True)


def test_a_part_of_a_repository_is_enough_offline(hub: Hub, fetch: Fetch, tmp_path: Path) -> None:
    """`hf download me/clock-GGUF --include "*Q8_0*"` also notes which files there are."""
    fetch("me/clock-GGUF:Q8_0")
    huggingface_hub.snapshot_download("me/clock-GGUF", cache_dir=tmp_path / "cache", allow_patterns=["*Q8_0*"])
    hub.asked.clear()
    model = fetch("me/clock-GGUF", offline=True).model
    assert model is not None
    assert model.name == "clock-Q8_0.gguf"
    assert hub.asked == []


def test_a_shard_that_the_hub_lacks_is_named(hub: Hub, fetch: Fetch) -> None:
    """Before the others are downloaded."""
    hub.repos["me/split"] = {"q/a-Q8_0-00001-of-00003.gguf": b"x", "q/a-Q8_0-00003-of-00003.gguf": b"x"}
    with pytest.raises(FileError) as caught:
        fetch("me/split")
    missing = "me/split has no file q/a-Q8_0-00002-of-00003.gguf, a part of q/a-Q8_0-00001-of-00003.gguf (GGUF files:"
    assert missing in str(caught.value)
    assert not any(FILES in path for _, path, _ in hub.asked)
    hub.repos["me/split"]["q/a-Q8_0-00002-of-00003.gguf"] = b"y"
    model = fetch("me/split").model
    assert model is not None
    assert model.name == "a-Q8_0-00001-of-00003.gguf"
    assert sorted(p.name[:12] for p in model.parent.iterdir()) == [f"a-Q8_0-0000{i}" for i in (1, 2, 3)]


def test_an_unwritable_cache_is_named(hub: Hub, fetch: Fetch, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(FileError, match=r"me/clock-GGUF: .*cache.*: (File exists|Not a directory)$"):
        fetch("me/clock-GGUF")
