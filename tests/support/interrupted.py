"""A process that is interrupted by SIGINT in every call of a decoder, again and again.

    python tests/support/interrupted.py wfst       # exit 0: within 2 s, each time

Of each call, with one thread and two: `KeyboardInterrupt` within 2 s of the signal,
nothing else, and afterwards the same results as before.
"""

import importlib.util
import os
import signal
import sys
import threading
import time
from functools import partial

import numpy as np
from real_speech import RECIPE, speech_graph, utterances

import wfstdec
from wfstdec.adapters import pyctcdecode, torchaudio

WITHIN_S = 2.0
DELAYS_S = 0.02, 0.15
LIST, LONG = 4000, 100
"""Utterances of a list, and times that some make a long one: seconds of work."""
FILES = {
    "tokens": RECIPE / "tokens.txt",
    "lexicon": RECIPE / "lexicon.txt.gz",
    "separator": "<wb>",
}


def interrupt(name, work, results):
    """Interrupt `work(long=True)`, and have `work(long=False)` give the same."""
    before = results(work(long=False))
    for delay in DELAYS_S:
        interrupt_after(delay, name, work)
        assert results(work(long=False)) == before, f"{name}: other results"


def interrupt_after(delay, name, work):
    sent, dropped = [], []

    def send():
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    def drop(found):
        """Python drops what is raised while an object dies; a user types it again."""
        assert found.exc_type is KeyboardInterrupt, found
        dropped.append(found)
        threading.Timer(0.01, send).start()

    sys.unraisablehook = drop
    timer = threading.Timer(delay, send)
    try:
        timer.start()
        while len(sent) <= len(dropped) or time.monotonic() < sent[-1] + WITHIN_S:
            work(long=True)
    except KeyboardInterrupt:
        took = time.monotonic() - sent[-1]
        assert took < WITHIN_S, f"{name}: {took:.2f} s after the signal"
        assert len(dropped) < 2, f"{name}: {len(dropped)} signals were dropped"
    else:
        timer.cancel()
        raise AssertionError(f"{name}: was not interrupted")
    finally:
        sys.unraisablehook = sys.__unraisablehook__


def texts(found):
    return [
        one if isinstance(one, list) else (one.text, one.total_cost) for one in found
    ]


def lattices(found):
    return [(one.states.tobytes(), one.arcs.tobytes()) for one in found]


def decode(decoder, call, some, long):
    return getattr(decoder, call)(some * (LIST // len(some)) if long else some)


def advance(decoder, chunk, long, short=1000):
    """Advance one utterance: of an hour, where it is to be interrupted."""
    sessions = decoder.sessions()
    one = sessions.open()
    chunk = chunk if long else chunk[:short]
    try:
        sessions.advance({one: chunk})
    except KeyboardInterrupt:
        if one in sessions:
            done = sessions.partial(one).num_frames
            sessions.advance({one: chunk[:10]})
            assert sessions.close(one).num_frames == done + 10
        raise
    sessions.partial(one)  # what it needs is compiled, when somebody interrupts
    return [sessions.close(one)]


def decoders(kind, threads):
    """Decoders of a kind, with their calls."""
    if kind == "wfst":
        options = wfstdec.WfstOptions(beam=11.0, lm_scale=0.8, nbest=3)
        decoder = wfstdec.WfstDecoder(speech_graph("normal"), options, threads=threads)
        return decoder, ("decode", "decode_nbest", "decode_lattice")
    if kind == "trie":
        options = wfstdec.TrieOptions(beam=10.0, beam_size=64, lm_scale=0.8, nbest=3)
        files = FILES | {"lm": RECIPE / "lm.arpa.gz"}
        decoder = wfstdec.TrieDecoder(**files, options=options, threads=threads)
        return decoder, ("decode", "decode_nbest", "decode_lattice")
    files = {"tokens": FILES["tokens"], "separator": "<wb>"}
    return wfstdec.GreedyDecoder(**files, threads=threads), ("decode",)


def interrupt_decoder(kind, threads):
    decoder, calls = decoders(kind, threads)
    some = utterances(10)
    for call in calls:
        results = lattices if call == "decode_lattice" else texts
        name = f"{kind} {call}, {threads} threads"
        interrupt(name, partial(decode, decoder, call, some), results)
    name = f"{kind} advance, {threads} threads"
    interrupt(name, partial(advance, decoder, np.concatenate(some * LONG)), texts)


def interrupt_pyctcdecode(threads):
    tokens = wfstdec.read_tokens(FILES["tokens"])
    labels = [chr(ord("A") + v) for v in range(len(tokens))]
    labels[tokens.blank], labels[1] = "", " "
    decoder = pyctcdecode.BeamSearchDecoderCTC(
        pyctcdecode.Alphabet.build_alphabet(labels), threads=threads
    )
    some = utterances(10)
    hour = np.concatenate(some * LONG)

    def batch(long):
        return decoder.decode_batch(None, some * LIST if long else some)

    def one(long):
        return [decoder.decode(hour if long else hour[:1000])]

    interrupt(f"pyctcdecode, {threads} threads", batch, list)
    interrupt(f"pyctcdecode, an hour, {threads} threads", one, list)


def interrupt_torchaudio(threads):
    names = list(wfstdec.read_tokens(FILES["tokens"]).names)
    decoder = torchaudio.ctc_decoder(
        None, names, blank_token=names[0], sil_token="<wb>", threads=threads
    )
    lengths = [len(one) for one in utterances(10)]
    batch = np.zeros((len(lengths), max(lengths), len(names)), np.float32)
    for row, one in zip(batch, utterances(10), strict=True):
        row[: len(one)] = one

    def results(found):
        return [(one.score, one.tokens.tolist()) for [one, *_] in found]

    all_of_them = np.tile(batch, (LONG, 1, 1)), np.tile(lengths, LONG)

    def many(long):
        return decoder(*(all_of_them if long else (batch, lengths)))

    interrupt(f"torchaudio, {threads} threads", many, results)


def interrupt_aligner():
    aligner = wfstdec.ForcedAligner(**FILES, g2p="spelling")
    lines = (RECIPE / "refs.txt").read_text("utf-8").splitlines()
    words = [word for line in lines[::10] for word in line.split()[1:]]
    hour = np.concatenate(utterances(10) * LONG)

    def align(long):
        if long:
            return aligner.align(hour, words * LONG)
        return aligner.align(hour[: len(hour) // LONG], words)

    interrupt("align", align, lambda found: found.words)


def interrupt_transducer():
    import torch

    from wfstdec.transducer.torch_model import (
        HeadConfig,
        TorchTransducer,
        TransducerConfig,
        TransducerNet,
    )

    torch.manual_seed(0)
    torch.set_num_threads(1)
    head = HeadConfig("rnnt", "lstm", ())
    config = TransducerConfig(("a", "b"), (head,), input_dim=5, width=16, dim=16)
    model = TorchTransducer(TransducerNet(config))
    decoder = wfstdec.TransducerDecoder(model)
    some = [torch.randn(5, 16) for _ in range(2)]
    interrupt("transducer", partial(decode, decoder, "decode", some), texts)
    chunk = torch.cat(some * LONG)
    few = partial(advance, decoder, chunk, short=5)  # a step takes milliseconds
    interrupt("transducer, advance", few, texts)


def main(kind):
    for threads in 1, 2:
        if kind == "others":
            interrupt_pyctcdecode(threads)
            interrupt_torchaudio(threads)
        else:
            interrupt_decoder(kind, threads)
    if kind == "others":
        interrupt_aligner()
        if importlib.util.find_spec("torch") is not None:
            interrupt_transducer()


if __name__ == "__main__":
    main(sys.argv[1])
