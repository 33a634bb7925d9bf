"""Command `serve`."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import gc
import ipaddress
import logging
import os
import resource
import shutil
import socket
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from wfstdec.cli.decode import (
    MODEL,
    choose_decoder,
    formatter_of,
    load_acoustic_model,
    make_decoder,
    take_spec,
)
from wfstdec.cli.flags import (
    AUDIO_MODEL,
    CTC_DECODERS,
    DECODERS,
    LIMITS,
    READABLE,
    Args,
    command,
    limits_of,
    need,
    search_options,
)
from wfstdec.errors import BackendError, FormatError, OptionError
from wfstdec.models.encoder import EncoderSpec
from wfstdec.search.decoder import CUDA

if TYPE_CHECKING:
    from wfstdec.server.readable import Readable

KEY_VARIABLE = "WFSTDEC_KEY"
_PER_CLIENT = 64  # if addresses are those of clients, not of a proxy

_log = logging.getLogger(__name__)


@command(
    "--host --port --processes --key-file --origin --host-name --name --lang --wyoming "
    "--wyoming-any --no-page --ssl-certfile --ssl-keyfile --proxy-headers "
    "--forwarded-allow-ips --confidence --endpoint-floor-ms --prompt-boosts "
    f"{READABLE} {AUDIO_MODEL}",
    changes={
        "--smart": {"help": "readable text also for clients that do not request it"}
    },
    places={"acoustic_model": MODEL},
    decoders=tuple(DECODERS),
    groups={"limits": LIMITS},
    common="--graph --decoder --tokens --lm-scale --beam --confidence --host --port "
    "--key-file --max-streams",
    # They run in `graphs/librispeech_demo`, if it has a graph.
    examples=r"""
  wfstdec serve model.json --graph graph.npz --lm-scale 0.8 --beam 10
  wfstdec serve model.json --decoder trie --lexicon lexicon.txt.gz --lm lm.arpa.gz \
      --separator '<wb>' --lm-scale 0.8 --port 8080 --max-streams 16
""",
)
def serve(args: Args) -> int:
    r"""Serve a model over HTTP, WebSocket and TCP: streams and files of audio to words.

        wfstdec serve model.onnx --graph graph.npz --lm-scale 0.8
        wfstdec serve model.onnx --tokens tokens.txt --graph graph.npz --host 0.0.0.0 \
            --key-file key.txt --max-streams 100

    OpenAI's clients POST files to /v1/audio/transcriptions and stream to /v1/realtime,
    Deepgram's stream and POST files to /v1/listen; a web UI is at /. Home Assistant
    connects to the address of --wyoming. The first line of output is the address;
    `ready` follows when all kernels are compiled. SIGTERM, or Ctrl-C, drains: streams
    get their final words. A second one ends at once.
    """
    choose_decoder(args)
    _prepare_processes(args)
    try:
        from wfstdec.server import app, engine, processes, service, wyoming
        from wfstdec.server import uvicorn_server as running
        from wfstdec.server.shared import Shared
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        raise BackendError(
            f"wfstdec serve needs {package}: pip install starlette uvicorn "
            "websockets python-multipart prometheus_client soundfile soxr"
        ) from None
    limits, key, origins = limits_of(args), read_key(args.key_file), _origins(args)
    if limits.per_client is None and args.proxy_headers:
        limits = dataclasses.replace(limits, per_client=_PER_CLIENT)
    # Numbers and punctuation are ready for clients that request them.
    own = "en" if args.lang[:2].lower() == "en" else "off"
    args.itn, args.punctuate = args.itn or own, args.punctuate or own
    tls = _tls(args)
    options = search_options(args)
    # The port first: a model takes a while to load, and the port may be in use.
    with contextlib.ExitStack() as sockets:
        listening = sockets.enter_context(running.open_socket(args.host, args.port))
        host, port = listening.getsockname()[:2]
        wyoming_socket = _open_wyoming(args, running.open_socket)
        sockets.enter_context(wyoming_socket or contextlib.nullcontext())
        if key is None and not ipaddress.ip_address(host.partition("%")[0]).is_loopback:
            text = "anyone who can reach %s may use the server; --key-file sets a key"
            _log.warning(text, host)
        hosts = known_hosts(args, host, key)
        _allow_open_files()
        shared = Shared(limits, args.processes)
        # Its warnings and errors go where ours do.
        theirs, ours = logging.getLogger("uvicorn"), logging.getLogger("wfstdec")
        theirs.handlers, theirs.propagate = ours.handlers, False

        def run(model: Any, decoder: Any, report: Callable[[], None]) -> None:
            def on_ready() -> None:
                _keep_objects()
                report()

            serving = service.Service(
                model,
                decoder,
                limits,
                name=args.name or Path(args.acoustic_model).stem,
                confidence=args.confidence,
                prompt_boosts=args.prompt_boosts == "on",
                nbest=getattr(options, "nbest", None) or 1,
                workers=args.workers,
                endpoint_floor_s=args.endpoint_floor_ms / 1000,
                key=key,
                origins=origins,
                hosts=hosts,
                language=args.lang,
                readable=readable,
                shared=shared,
            )
            wyoming_server = None
            if wyoming_socket is not None:
                wyoming_server = wyoming.Server(serving, wyoming_socket)
            # clients do not wait for one of several
            if is_worker := shared.processes > 1:
                serving.engine.start()
                serving.engine.warm()
            server = running.DrainingServer(
                running.make_config(
                    app.make_app(serving, page=not args.no_page),
                    limits,
                    proxy_headers=args.proxy_headers,
                    forwarded_allow_ips=args.forwarded_allow_ips,
                    **tls,
                ),
                serving,
                on_ready=on_ready,
                is_warm=is_worker,
                wyoming_server=wyoming_server,
            )
            server.run([listening])
            if server.fault is not None:
                raise server.fault

        readable = processes.with_kernels(lambda: _readable(args))
        address = _address("https" if tls else "http", host, port)
        if wyoming_socket is not None:
            address += "\n" + _address("tcp", *wyoming_socket.getsockname()[:2])
        if args.processes == 1:
            model = load_acoustic_model(args)
            decoder = processes.with_kernels(lambda: make_decoder(args, options))
            print(address, flush=True)
            run(model, decoder, partial(print, "ready", flush=True))
        else:
            given = Args(**vars(args))  # the model changes some
            take_spec(args, processes.in_child(lambda: _spec(given)))
            decoder = processes.with_kernels(lambda: make_decoder(args, options))
            print(address, flush=True)
            engine.warm(decoder)
            _keep_objects()
            processes.Supervisor(
                args.processes,
                lambda report: run(load_acoustic_model(given), decoder, report),
                shared,
                partial(print, "ready", flush=True),
            ).run()
    if threading.active_count() > 1:  # cut off: without waiting for threads
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    return 0


def _address(scheme: str, host: str, port: int) -> str:
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def _open_wyoming(
    args: Args, open_socket: Callable[[str, int], socket.socket]
) -> socket.socket | None:
    """Bind the socket for Wyoming, if requested: to this machine only."""
    need(args, "--wyoming-any", "--wyoming")
    if args.wyoming is None:
        return None
    parts = urlsplit(args.wyoming)
    try:
        host, port = parts.hostname, parts.port
    except ValueError:  # no port of TCP
        host = port = None
    if f"tcp://{parts.netloc}" != args.wyoming or not host or port is None:
        raise OptionError(
            f"--wyoming {args.wyoming!r}, expected tcp://HOST:PORT, such as "
            "tcp://127.0.0.1:10300"
        )
    bound = open_socket(host, port)
    address = bound.getsockname()[0].partition("%")[0]
    if not (args.wyoming_any or ipaddress.ip_address(address).is_loopback):
        bound.close()
        raise OptionError(
            f"--wyoming {args.wyoming} can be reached from other machines, and the "
            "protocol has no keys; expected an address of this machine alone, such as "
            "tcp://127.0.0.1:10300; --wyoming-any allows others"
        )
    return bound


def _readable(args: Args) -> Readable:
    from wfstdec.server.readable import Readable

    formatter = formatter_of(args)
    if formatter is None:
        return Readable()
    stream = formatter.stream()
    for _ in range(2):
        stream.feed(["twenty", "words"], 1)
        stream.end(["twenty", "words"])
    forms = map(" ".join, formatter.display.values())
    return Readable(formatter.itn, formatter.punctuation, forms, smart=args.smart)


def _prepare_processes(args: Args) -> None:
    """Check that processes can share the decoder; divide the cores among them."""
    if args.processes == 1:
        return
    if not hasattr(os, "fork"):
        raise OptionError(f"--processes {args.processes} without os.fork, expected 1")
    if args.decoder not in CTC_DECODERS or getattr(args, "backend", "cpu") == CUDA:
        kind = args.decoder if args.decoder not in CTC_DECODERS else CUDA
        raise OptionError(
            f"--processes {args.processes} with {kind}, expected 1, or a decoder of "
            f"the CPU: {', '.join(CTC_DECODERS)}"
        )
    cores = max(1, len(os.sched_getaffinity(0)) // args.processes)
    args.threads, args.workers = args.threads or cores, args.workers or cores
    # For metrics of all processes; read when `prometheus_client` is imported.
    folder = tempfile.mkdtemp(prefix="wfstdec-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder


def _spec(args: Args) -> EncoderSpec:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # each process warns again
        return load_acoustic_model(args).spec


def _keep_objects() -> None:
    """Collect garbage, and exclude all objects from later collections."""
    # A full collection would stop all streams for 76 ms.
    gc.collect()
    gc.freeze()


def read_key(path: str | None) -> str | None:
    """Read the key from a file, or from the environment; None without one."""
    text = os.environ.get(KEY_VARIABLE)
    if path is not None:
        with open(path, encoding="utf-8") as file:
            text = file.readline()
    if text is None:
        return None
    key = text.strip()
    if not (key.isascii() and key.isprintable() and key and " " not in key):
        raise FormatError(
            f"{path or KEY_VARIABLE}: a key of {len(key)} characters, expected one or "
            "more of ASCII, no spaces; browsers send letters, digits, '-' and '_'"
        )
    return key


def _origins(args: Args) -> tuple[str, ...]:
    for origin in args.origin:
        parts = urlsplit(origin)
        if origin != "*" and f"{parts.scheme}://{parts.netloc}" != origin.lower():
            raise OptionError(
                f"--origin {origin!r}, expected '*' or scheme, host and port alone, "
                "such as https://example.org:8443"
            )
    return tuple(origin.lower() for origin in args.origin)


def known_hosts(args: Args, bound: str, key: str | None) -> tuple[str, ...]:
    """Return names, in lower case, that clients may use for the server."""
    if key is not None and bound in ("0.0.0.0", "::") and not args.host_name:
        _log.info("any host is answered, as a key is needed; --host-name restricts it")
        return ("*",)
    names = [urlsplit(f"//{name}").hostname or "" for name in args.host_name]
    for name, given in zip(names, args.host_name, strict=True):
        if not name or "/" in given:
            text = f"--host-name {given!r}, expected a name alone, such as example.org"
            raise OptionError(text)
    names += [urlsplit(origin).hostname or origin for origin in args.origin]
    return "localhost", "127.0.0.1", "::1", bound, args.host.lower(), *names


def _tls(args: Args) -> dict[str, str]:
    need(args, "--ssl-keyfile", "--ssl-certfile")
    given = {"ssl_certfile": args.ssl_certfile, "ssl_keyfile": args.ssl_keyfile}
    for path in filter(None, given.values()):
        open(path, "rb").close()  # its error names the file
    return {name: path for name, path in given.items() if path}


def _allow_open_files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some systems have no hard limit, and refuse such a soft one.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
