"""The token of a person at the hub: a secret."""

from __future__ import annotations

import re
from collections.abc import Iterable

from spec_cli.errors import UsageError
from spec_cli.settings import Settings

_INSIDE = r"[A-Za-z0-9._~+/=-]+"  # RFC 6750, b64token


def token_of(settings: Settings) -> str | None:
    """The token of -hft or HF_TOKEN without the blanks and line ends around it; an empty one is none.

    Raises UsageError, which does not show it, for what cannot be one.
    """
    token = (settings.hf_token or "").strip()
    if token and not re.fullmatch(_INSIDE, token):
        where = settings.origins.get("hf_token", "-hft/--hf-token")
        raise UsageError(f"{where}: no token has blanks, quotes, control characters or letters beyond ASCII inside")
    return token or None


def masked(text: str, secrets: Iterable[str]) -> str:
    """A text for people in which neither the secrets can be read nor what a URL has before its @."""
    text = re.sub(r"(https?://)[^\s/@]*@", r"\1", text)
    for part in sorted({part for secret in secrets for part in re.findall(_INSIDE, secret)}, key=len, reverse=True):
        text = text.replace(part, "***") if len(part) > 3 else text  # a shorter one is no secret, and garbles words
    return text
