"""The flags of the server; `flags.FLAGS` takes them in."""

from __future__ import annotations

import argparse
from dataclasses import fields

from wfstdec.cli.kinds import Flag, switch, takes
from wfstdec.server.limits import Limits

LIMIT_FLAGS = {
    Limits.flag(one.name): takes(
        *("SECONDS" if one.name.endswith("_s") else "N", one.metadata["help"]),
        float if one.name.endswith("_s") else int,
        default=one.default,
    )
    for one in fields(Limits)
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
    """Make the limits that a command line asks for."""
    names = [field.name for field in fields(Limits)]
    return Limits(**{name: getattr(args, f"max_{name}") for name in names})
