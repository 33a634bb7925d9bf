"""Times the decoder on a GPU, and on the CPU beside it.

    python tools/bench_gpu.py graph.npz logprobs.npz --output run.jsonl

Before anything is timed, the GPU's answers are compared with the CPU's, bit for bit.
Times are medians over warm runs of `decode`, log-probs on the device, hypotheses on the
host; one JSON line per configuration, the first one names the machine.
"""

import argparse
import json
import platform
import statistics
import time
from itertools import chain

import cupy
import numpy as np

from wfstdec import load_graph
from wfstdec.wfst.decoder import WfstDecoder
from wfstdec.wfst.options import DecodeOptions

BATCHES = (1, 8, 32, 128, 400)
SETTINGS = ((1000, 8.0), (3000, 13.0), (7000, 13.0), (10_000, 17.0))
NUM_BOOSTS = 1000


def machine():
    """What the figures depend on."""
    device = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    return {
        "gpu": device["name"].decode(),
        "multiprocessors": device["multiProcessorCount"],
        "memory_gib": round(device["totalGlobalMem"] / 2**30, 1),
        "cuda": cupy.cuda.runtime.runtimeGetVersion(),
        "cupy": cupy.__version__,
        "python": platform.python_version(),
        "copy_gb_per_s": copy_bandwidth(),
    }


def copy_bandwidth(mebibytes=1024):
    """Bytes read and written per second by a device copy, in GB/s."""
    source = cupy.zeros(mebibytes << 20, cupy.uint8)
    target = cupy.empty_like(source)
    seconds = median_seconds(lambda: cupy.copyto(target, source), 10)
    return round(2 * source.nbytes / seconds / 1e9)


def median_seconds(run, repeats):
    """The median by CUDA events, after one run to warm up."""
    run()
    seconds = []
    for _ in range(repeats):
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        run()
        end.record()
        end.synchronize()
        seconds.append(cupy.cuda.get_elapsed_time(start, end) / 1e3)
    return statistics.median(seconds)


def configurations(graph):
    """Options and boosts to time."""
    words = graph.words[1 :: max(1, len(graph.words) // NUM_BOOSTS)]
    for max_active, beam in SETTINGS:
        for boosts in (None, dict.fromkeys(words, 1.5)):
            yield DecodeOptions(beam, max_active, lm_scale=0.8), boosts


def measure(args, graph, utterances):
    """Yield one record per configuration and batch."""
    for options, boosts in configurations(graph):
        ours = WfstDecoder(graph, options, "cuda", frame_shift_s=args.frame_shift)
        cpu = WfstDecoder(graph, options, "cpu", frame_shift_s=args.frame_shift)
        start = time.perf_counter()
        expected = cpu.decode(utterances, boosts=boosts)
        cpu_seconds = time.perf_counter() - start
        if ours.decode(utterances, boosts=boosts) != expected:
            raise SystemExit(f"the GPU's hypotheses are not the CPU's: {options}")
        frames = sum(map(len, utterances))
        record = {"max_active": options.max_active, "beam": options.beam}
        record |= {"boosted": len(boosts or ())}
        cpu_rtfx = round(frames * args.frame_shift / cpu_seconds)
        yield record | {"decoder": "cpu", "threads": cpu.threads, "rtfx": cpu_rtfx}
        for batch in args.batches:
            tiled = [utterances[i % len(utterances)] for i in range(batch)]
            on_gpu = [cupy.asarray(x) for x in tiled]
            seconds = median_seconds(
                lambda on_gpu=on_gpu, decoder=ours, boosts=boosts: decoder.decode(
                    on_gpu, boosts=boosts
                ),
                args.repeats,
            )
            frames = sum(map(len, tiled))
            yield record | {
                "decoder": "cuda",
                "batch": batch,
                "seconds": seconds,
                "rtfx": round(frames * args.frame_shift / seconds),
                "us_per_frame_of_longest": 1e6 * seconds / max(map(len, tiled)),
            }


def main():
    """Parse, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("graph")
    parser.add_argument("logprobs", help=".npz of [T, V] arrays")
    parser.add_argument("--output", required=True)
    parser.add_argument("--frame-shift", type=float, default=0.02)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES)
    args = parser.parse_args()
    graph = load_graph(args.graph)
    with np.load(args.logprobs) as file:
        utterances = [file[name].astype(np.float32) for name in file.files]
    with open(args.output, "w", encoding="utf-8") as out:
        for record in chain([machine()], measure(args, graph, utterances)):
            line = json.dumps(record)
            print(line)
            out.write(line + "\n")


if __name__ == "__main__":
    main()
