"""Why the hub gave nothing, in one line that says what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

# Of httpx and of requests, by name: which of them huggingface_hub uses depends on its version.
_NO_ANSWER = {"TransportError", "ConnectionError", "ChunkedEncodingError", "Timeout"}
_CACHED = "; --offline uses what is cached"
_LONGEST = 300  # characters of others' words


def reason(error: BaseException, repo: str, endpoint: str, has_token: bool) -> str:
    """What an exception of huggingface_hub means, without its URLs and request numbers."""
    chain = list(_chain(error))
    for one in chain:
        response = getattr(one, "response", None)
        if response is not None:
            return _answer(response, _line(getattr(one, "server_message", None) or ""), repo, endpoint, has_token)
    for one in chain:
        names = {kind.__name__ for kind in type(one).__mro__}
        if names & _NO_ANSWER:
            late = any("Timeout" in name for name in names)
            system = next((e.strerror for e in reversed(chain) if isinstance(e, OSError) and e.strerror), None)
            return f"{endpoint} cannot be reached: {'no answer in time' if late else system or _words(one)}{_CACHED}"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'the cache'}: {error.strerror}"
    if isinstance(error, ValueError | KeyError | TypeError) and type(error).__name__ != "HFValidationError":
        return f"{endpoint} does not answer as Hugging Face does (HF_ENDPOINT)"
    return _words(error.__cause__ or error)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and what it came from; a chain that bites its tail ends."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        seen.append(error)
        yield error
        error = error.__cause__ or error.__context__


def _answer(response: Any, told: str, repo: str, endpoint: str, has_token: bool) -> str:
    status, code = response.status_code, response.headers.get("X-Error-Code", "")
    told = f" ({told})" if told else ""
    own = "the account of your token" if has_token else "an account, and give its token (HF_TOKEN or -hft)"
    if code == "GatedRepo":
        return f"the repository is gated: ask for access at {endpoint}/{repo} with {own}{told}"
    if code == "EntryNotFound":
        return f"the file is listed and not there{told}"
    if code == "RepoNotFound" or status == 401:
        token = "the token is not valid for it" if has_token else "no token was given (HF_TOKEN or -hft)"
        return f"{endpoint} has no such repository, or it is private and {token}{told}"
    if status == 429:
        wait = _seconds(response.headers)
        more = "" if has_token else " (with a token, HF_TOKEN or -hft, it allows more)"
        when = f"in {wait} s" if wait is not None else "later"
        return f"{endpoint} says 429, too many requests{more}: try again {when}{_CACHED}{told}"
    phrase = next((f" {one.phrase}" for one in HTTPStatus if one == status), "")
    if status >= 500:
        return f"{endpoint} says {status}{phrase}: try again later{_CACHED}{told}"
    return f"{endpoint} says {status}{phrase}{told}"


def _seconds(headers: Any) -> int | None:
    """How long to wait: `Retry-After: 5` or `RateLimit: "api";r=0;t=5`."""
    found = re.fullmatch(r"\s*(\d+)\s*", headers.get("Retry-After", ""))
    found = found or re.search(r";\s*t=(\d+)", headers.get("RateLimit", ""))
    return int(found[1]) if found else None


def _words(error: BaseException) -> str:
    return _line(re.sub(r"\(Request ID: [^)]*\)", "", str(error))) or type(error).__name__


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."
