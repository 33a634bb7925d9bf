"""`wfstdec serve --processes`: one port, one decoder, limits and metrics of all."""

import asyncio
import contextlib
import json
import os
import re
import signal
import time

import httpx
import numpy as np
import pytest
from processes import python
from row_streams import bytes_of, wav_of
from served import LINEAR16, answers, listened, post_file, say, serving, wait_until
from server_program import MODEL, Program, searching
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from wfstdec import warm_up
from wfstdec.cli.main import main
from wfstdec.errors import BackendError
from wfstdec.jit import cache
from wfstdec.server import processes
from wfstdec.server.limits import Limits
from wfstdec.server.service import Service
from wfstdec.server.shared import Places, Shared

WORDS = "interim_results=true"


@pytest.fixture(scope="module")
def graph(decoder, tmp_path_factory):
    path = tmp_path_factory.mktemp("processes") / "graph.npz"
    decoder.graph.save(path)
    return path


@pytest.fixture(scope="module")
def two(graph):
    with Program(*searching(graph), "--processes", "2") as program:
        program.wait_until_ready()
        yield program


@pytest.fixture(scope="module")
def one(encoder, decoder):
    with serving(Service(encoder, decoder)) as server:
        yield server


def words_of(messages):
    return [
        (word["word"], word["start"], word["end"])
        for message in messages
        if message["type"] == "Results" and message["is_final"]
        for word in message["channel"]["alternatives"][0]["words"]
    ]


def metric(program, name):
    text = httpx.get(f"{program.url}/metrics").text
    lines = re.findall(rf"^{name}(?:{{.*}})? (.*)$", text, re.MULTILINE)
    return sum(map(float, lines))


async def streamed(program, rows, meanwhile, begun):
    """Words of a stream, in whose middle something happens; None if it breaks."""
    parts = [bytes_of(part) for part in np.array_split(rows, 8)]
    try:
        async with connect(f"{program.ws}/v1/listen?{LINEAR16}&{WORDS}") as socket:
            for part in parts[:4]:
                await socket.send(part)
            json.loads(await socket.recv())
            begun.append(1)
            await meanwhile.wait()
            for part in parts[4:]:
                await socket.send(part)
            await say(socket, type="CloseStream")
            return words_of(await answers(socket)) if not socket.close_code else None
    except ConnectionClosed:
        return None


def streams(program, rows, act):
    """Words of a stream of each of `rows`; `act` is called when all have begun."""

    async def run():
        meanwhile, begun = asyncio.Event(), []
        tasks = [
            asyncio.create_task(streamed(program, one, meanwhile, begun))
            for one in rows
        ]
        while len(begun) < len(rows):
            await asyncio.sleep(0.01)
        await asyncio.to_thread(act)
        meanwhile.set()
        return await asyncio.gather(*tasks)

    return asyncio.run(run())


def expected(one, rows):
    messages, _ = listened(one, bytes_of(rows), query=f"{LINEAR16}&{WORDS}")
    words = words_of(messages)
    assert len(words) > 3
    return words


# ------------------------------------------------------------------- what they say
def test_two_processes_give_the_words_of_one(two, one, speech):
    rows = [speech(4, seed) for seed in range(3)]
    right = [expected(one, some) for some in rows]
    assert streams(two, rows * 4, lambda: None) == right * 4
    for some in rows:
        fields = {"response_format": "verbose_json", "confidence": "true"}
        found = [post_file(x, wav_of(some), **fields).json() for x in (one, two, two)]
        assert found[0]["words"] and found[0] == found[1] == found[2]


def test_metrics_and_readiness_are_those_of_all_processes(two, speech):
    before, found = metric(two, "wfstdec_audio_seconds_total"), []

    def look():
        for _ in range(6):  # each by a connection of its own
            ready = httpx.get(f"{two.url}/ready").json()
            found.append((ready["streams"], metric(two, "wfstdec_streams")))

    streams(two, [speech(2, 1)] * 12, look)
    assert found == [(12, 12)] * 6
    wait_until(lambda: metric(two, "wfstdec_streams") == 0)
    seconds = {metric(two, "wfstdec_audio_seconds_total") for _ in range(6)}
    assert seconds == {before + 24}
    assert metric(two, "wfstdec_process_up") == 2
    for name in ("gil_wait", "gc"):
        wait_until(lambda name=name: metric(two, f"wfstdec_{name}_seconds_count") > 0)


# ------------------------------------------------------------------- limits
def test_limits_are_those_of_all_processes_together(graph):
    flags = "--processes 2 --proxy-headers --max-per-client 6 --max-streams 10"
    with Program(*searching(graph), *flags.split()) as program:
        program.wait_until_ready()

        async def opened(stack, client):
            own = {"X-Forwarded-For": client}
            url = f"{program.ws}/v1/listen?{LINEAR16}"
            socket = await stack.enter_async_context(
                connect(url, additional_headers=own)
            )
            await say(socket, type="KeepAlive")

        async def refused(stack, client, status, *named):
            for _ in range(8):  # by either process
                with pytest.raises(InvalidStatus) as error:
                    await opened(stack, client)
                assert error.value.response.status_code == status
                text = error.value.response.body.decode()
                assert all(one in text for one in named)

        async def run():
            async with contextlib.AsyncExitStack() as stack:
                for _ in range(6):
                    await opened(stack, "192.0.2.1")
                named = "6 streams and files of 192.0.2.1", "--max-per-client"
                await refused(stack, "192.0.2.1", 429, *named)
                for i in range(4):
                    await opened(stack, f"192.0.2.{i + 2}")
                named = "10 streams", "--max-streams"
                await refused(stack, "192.0.2.9", 503, *named)
                assert httpx.get(f"{program.url}/ready").json()["reason"] == "full"

        asyncio.run(run())


def test_a_place_is_free_when_its_process_is_gone():
    shared = Shared(Limits(uploads=2, per_client=1), 2)
    uploads = Places(shared, "uploads")
    shared.process = 1
    others = Places(shared, "uploads")
    assert others.take("a") and others.take("b") and not uploads.take("c")
    assert others.total == uploads.total == 2
    assert shared.take_client("x", 1) is not None
    assert shared.take_client("x", 1) is None
    shared.clear(1)
    shared.process = 0
    assert uploads.take("c") and shared.take_client("x", 1) is not None


# ------------------------------------------------------------------- deaths
def test_the_death_of_a_process_breaks_its_own_streams_alone(graph, one, speech):
    with Program(*searching(graph), "--processes", "2") as program:
        program.wait_until_ready()
        dead, other = program.workers
        left = []

        def kill():
            os.kill(dead, signal.SIGKILL)
            wait_until(lambda: dead not in program.workers)
            left.append(httpx.get(f"{program.url}/ready").json()["streams"])

        rows = [speech(4, seed) for seed in range(4)]
        right = [expected(one, some) for some in rows]
        found = streams(program, rows * 10, kill)
        kept = [(a, b) for a, b in zip(found, right * 10, strict=True) if a is not None]
        assert 10 <= len(kept) <= 30 and left == [len(kept)]
        assert all(words == expected for words, expected in kept)
        wait_until(lambda: metric(program, "wfstdec_process_up") == 2)
        assert other in program.workers
        assert streams(program, rows * 3, lambda: None) == right * 3
        program.process.send_signal(signal.SIGTERM)
        assert program.end() == 0
        assert "by SIGKILL" in program.errors()


def test_deaths_that_follow_each_other_end_the_server(graph):
    with Program(*searching(graph), "--processes", "2") as program:
        program.wait_until_ready()
        for worker in program.workers:
            os.kill(worker, signal.SIGKILL)
        wait_until(lambda: not program.workers)
        wait_until(lambda: program.workers)
        os.kill(program.workers[0], signal.SIGKILL)
        assert program.end() == 1
        assert "3 worker processes ended within 60 s" in program.errors()


def test_a_second_signal_ends_all_processes_at_once(graph):
    with Program(*searching(graph), "--processes", "2") as program:
        program.wait_until_ready()
        with httpx.stream("POST", f"{program.url}/v1/listen", content=slowly(program)):
            pass
        assert program.end(10) == 0


def slowly(program):
    """A body that comes to no end, in which the server is stopped twice."""
    yield b"-"
    for _ in range(2):
        time.sleep(0.3)
        program.process.send_signal(signal.SIGTERM)
    time.sleep(1)


def test_a_process_that_cannot_start_ends_the_server_with_its_error(tmp_path):
    warm_up._graph().save(tmp_path / "graph.npz")  # of other tokens than the model's
    ends = []
    for num in "1", "2":
        flags = "--graph", str(tmp_path / "graph.npz"), "--processes", num
        with Program(*flags) as program:
            errors = program.errors().splitlines()
            ends.append((program.process.returncode, errors[-1]))
    assert ends[0] == ends[1] and ends[0][0] == 1
    assert ends[0][1].startswith("wfstdec serve: ")


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--graph", "g.npz", "--backend", "cuda"), "with cuda, expected 1"),
        (("--decoder", "greedy", "--processes", "0"), "1 or more"),
    ],
)
def test_what_no_processes_can_share_is_refused(flags, named, capsys):
    with contextlib.suppress(SystemExit):
        assert main(["serve", MODEL, "--processes", "2", *flags]) == 1
    assert named in capsys.readouterr().err


# ------------------------------------------------------------------- kernels
KERNELS = """
import json, sys
sys.path.insert(0, "tests/support")
from row_streams import bytes_of, long_rows, wav_of
from real_speech import utterances
from served import LINEAR16, listened, post_file, serving
from tools.bench.row_encoder import StreamingRowEncoder
from wfstdec import WfstDecoder, WfstOptions, load_graph
from wfstdec.jit import cache
from wfstdec.server.service import Service

options = WfstOptions(beam=10.0, lm_scale=0.8)
decoder = WfstDecoder(load_graph(sys.argv[1]), options, "cpu", threads=2)
rows = long_rows(utterances(3), 3, 0).astype("float32")
words = decoder.vocabulary.words[5:8]
phrase = " ".join(words[:2])
lists = [], words[:1], [phrase], [words[0], phrase], ["zzqx"], ["zzqx", *words, phrase]
with serving(Service(StreamingRowEncoder(decoder.graph.tokens), decoder)) as server:
    before = cache.num_ready
    for some in lists:
        terms = "".join(f"&keyterm={one.replace(' ', '+')}" for one in some)
        found, code = listened(server, bytes_of(rows), query=LINEAR16 + terms)
        assert code == 1000 and len(found) > 1
        for more in {}, {"confidence": "true"}, {"nbest": "3"}:
            boosts = json.dumps(some)
            answer = post_file(server, wav_of(rows), boosts=boosts, **more)
            assert answer.status_code == 200, answer.text
    print("kernels", before > 20, cache.num_ready - before)
"""


def test_no_kernel_is_compiled_or_loaded_after_ready(graph):
    done = python("-c", KERNELS, graph)
    assert "kernels True 0" in done.stdout, done.stderr


def test_kernels_are_compiled_by_another_process(tmp_path):
    """A process that has compiled keeps 1.6 GB in place of 0.4."""
    compiled = tmp_path / "compiled"

    def work():
        if not compiled.exists():
            cache.begin_compiling()  # raises where it may not
            compiled.write_text(str(os.getpid()))
        return os.getpid()

    assert processes.with_kernels(work) == os.getpid() != int(compiled.read_text())


def test_errors_of_a_child_are_raised():
    def fail(error):
        raise error

    with pytest.raises(FileNotFoundError, match="here"):
        processes.in_child(lambda: fail(FileNotFoundError("here")))
    unpicklable = type("Local", (Exception,), {})
    with pytest.raises(BackendError, match="Local: what"):
        processes.in_child(lambda: fail(unpicklable("what")))
    with pytest.raises(BackendError, match="killed"):
        processes.in_child(lambda: os.kill(os.getpid(), signal.SIGKILL))
    assert processes.in_child(lambda: 3) == 3
