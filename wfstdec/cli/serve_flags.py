"""The flags of the server; `flags.FLAGS` takes them in."""

from __future__ import annotations

import argparse
from dataclasses import fields

from wfstdec.cli.kinds import Flag, switch, takes
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


LIMIT_FLAGS = {
    Limits.flag(field.name): takes(
        *(("SECONDS", text, float) if name.endswith("_s") else ("N", text, int)),
        default=field.default,
    )
    for field in fields(Limits)
    for name, text in [(field.name, _LIMITS[field.name])]
}

SERVE_FLAGS: dict[str, Flag] = {
    "--host": takes(
        None, "the address to listen on: 0.0.0.0 for all", default="127.0.0.1"
    ),
    "--port": takes(
        "N",
        "the port; 0 takes a free one, which the first line says",
        int,
        default=8000,
    ),
    "--key-file": takes(
        "FILE",
        "the key that clients have to send, in its first line (default: that "
        "of the environment, WFSTDEC_KEY; without either everybody may come)",
    ),
    "--origin": takes(
        "ORIGIN",
        "another origin whose pages may use the server, such as "
        "https://example.org; several times for several, '*' for all",
        action="append",
        default=[],
    ),
    "--name": takes(
        None, "what the model is called in answers (default: its file's name)"
    ),
    "--lang": takes("LANGUAGE", "what answers say the language is", default="en"),
    "--no-page": switch("without the page at /"),
    "--ssl-certfile": takes("FILE", "TLS: the certificate, PEM"),
    "--ssl-keyfile": takes("FILE", "TLS: its private key, PEM"),
    "--proxy-headers": switch(
        "believe X-Forwarded-For and -Proto of those in --forwarded-allow-ips"
    ),
    "--forwarded-allow-ips": takes(
        "LIST",
        "addresses of proxies, with commas between; '*' for all",
        default="127.0.0.1,::1",
    ),
    **LIMIT_FLAGS,
}


def limits_of(args: argparse.Namespace) -> Limits:
    """Make the limits that a command line asks for.

    Raises:
        OptionError: One is out of range.
    """
    names = [field.name for field in fields(Limits)]
    return Limits(**{name: getattr(args, f"max_{name}") for name in names})
