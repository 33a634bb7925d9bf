"""The page at `/`: one file, and the headers that it is served with.

    page = read_page()
    Response(page.body, media_type="text/html", headers=page.headers)

The policy of the page allows its own script and style, by their hashes, and nothing
else but the server it came from; `blob:` is the audio worklet, which a browser takes
by an address alone. A proxy that sets a policy of its own has to leave this one.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from dataclasses import dataclass
from importlib.resources import files

_INLINE = re.compile(rb"<(script|style)>(.*?)</\1>", re.DOTALL)


@dataclass(frozen=True)
class Page:
    """The page as bytes.

    Attributes:
        body: HTML in UTF-8.
        headers: What it has to be served with, lower-case names.
    """

    body: bytes
    headers: dict[str, str]


@functools.cache
def read_page() -> Page:
    """Read the page and work out the policy that it needs."""
    body = (files(__package__) / "index.html").read_bytes()
    return Page(
        body,
        {
            "content-security-policy": _policy(body),
            "permissions-policy": "microphone=(self), camera=(), geolocation=()",
            "referrer-policy": "no-referrer",
            "x-content-type-options": "nosniff",
            "cache-control": "no-cache",
        },
    )


def _policy(body: bytes) -> str:
    """The page's content security policy: its own script, its own server."""
    hashes: dict[str, list[str]] = {"script": [], "style": []}
    for kind, text in _INLINE.findall(body):
        # By hashes, so that nothing but these very scripts runs.
        digest = base64.b64encode(hashlib.sha256(text).digest()).decode()
        hashes[kind.decode()].append(f"'sha256-{digest}'")
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {' '.join(hashes['script'])} blob:",
            f"style-src {' '.join(hashes['style'])}",
            "img-src data:",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        ]
    )
