"""The flags of the server; `flags.FLAGS` takes them in."""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import Any

from wfstdec.server.limits import Limits

_LIMITS = {
    "streams": "streams at once",
    "buffered_s": "seconds of a stream's audio that wait for the search; it is then "
    "read no faster",
    "message_bytes": "bytes of a message of a stream",
    "body_bytes": "bytes of a request with a file",
    "file_s": "seconds of a request's audio",
    "boosts": "entries of a boost list",
    "boost_chars": "characters of an entry of a boost list",
    "idle_s": "seconds without a message after which a stream is closed",
    "unread_s": "seconds that a client may leave its messages unread",
    "requests": "requests with files that are worked on or wait",
    "drain_s": "seconds from the first signal to stop until streams are cut off",
    "url_bytes": "bytes of an address, with its query",
}


def _limit(name: str, default: Any) -> dict[str, Any]:
    """A flag of a limit."""
    is_seconds = name.endswith("_s")
    return {
        "type": float if is_seconds else int,
        "default": default,
        "metavar": "SECONDS" if is_seconds else "N",
        "help": f"{_LIMITS[name]} (default: {default:g})"
        if is_seconds
        else f"{_LIMITS[name]} (default: {default})",
    }


LIMIT_FLAGS = {
    Limits.flag(field.name): _limit(field.name, field.default)
    for field in fields(Limits)
}

SERVE_FLAGS: dict[str, dict[str, Any]] = {
    "--host": {
        "default": "127.0.0.1",
        "help": "the address to listen on: 0.0.0.0 for all (default: %(default)s)",
    },
    "--port": {
        "type": int,
        "default": 8000,
        "metavar": "N",
        "help": "the port; 0 takes a free one, which the first line says (default: "
        "%(default)s)",
    },
    "--key-file": {
        "metavar": "FILE",
        "help": "the key that clients have to send, in its first line (default: that "
        "of the environment, WFSTDEC_KEY; without either everybody may come)",
    },
    "--origin": {
        "action": "append",
        "default": [],
        "metavar": "ORIGIN",
        "help": "another origin whose pages may use the server, such as "
        "https://example.org; several times for several, '*' for all",
    },
    "--name": {
        "help": "what the model is called in answers (default: its file's name)",
    },
    "--lang": {
        "default": "en",
        "metavar": "LANGUAGE",
        "help": "what answers say the language is (default: %(default)s)",
    },
    "--no-page": {"action": "store_true", "help": "without the page at /"},
    "--ssl-certfile": {"metavar": "FILE", "help": "TLS: the certificate, PEM"},
    "--ssl-keyfile": {"metavar": "FILE", "help": "TLS: its private key, PEM"},
    "--proxy-headers": {
        "action": "store_true",
        "help": "believe X-Forwarded-For and -Proto of those in --forwarded-allow-ips",
    },
    "--forwarded-allow-ips": {
        "default": "127.0.0.1,::1",
        "metavar": "LIST",
        "help": "addresses of proxies, with commas between; '*' for all (default: "
        "%(default)s)",
    },
    **LIMIT_FLAGS,
}


def limits_of(args: argparse.Namespace) -> Limits:
    """Make the limits that a command line asks for.

    Raises:
        OptionError: One is out of range.
    """
    names = [field.name for field in fields(Limits)]
    return Limits(**{name: getattr(args, f"max_{name}") for name in names})
