"""The weights in graphs/transducer_demo: they load, and read real speech."""

import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from wfstdec import (  # noqa: E402
    TransducerDecoder,
    TransducerOptions,
    load_transducer,
    read_tokens,
)
from wfstdec.io.results import read_text  # noqa: E402
from wfstdec.metrics import score_texts  # noqa: E402

RECIPE = Path(__file__).parent.parent / "graphs" / "transducer_demo"
HELD_OUT = {"1673", "174", "1993", "2086"}
"""Speakers that the weights were not trained on."""


@pytest.mark.parametrize("head", ["rnnt", "tdt"])
def test_tokens_are_those_of_the_table(head):
    model = load_transducer(RECIPE / "model.npz", head)
    table = read_tokens(RECIPE / "tokens.txt")
    assert table.names == (*model.tokens, "<blank>")
    assert table.blank == model.blank == 256
    assert model.durations == ((0, 1, 2, 3, 4) if head == "tdt" else ())
    assert (model.input_dim, model.stride) == (43, 4)


def test_pieces_are_those_of_the_sentencepiece_model():
    sentencepiece = pytest.importorskip("sentencepiece")
    path = str(RECIPE / "bpe.model")
    processor = sentencepiece.SentencePieceProcessor(model_file=path)
    names = [processor.id_to_piece(i) for i in range(len(processor))]
    model = load_transducer(RECIPE / "model.npz")
    assert names == ["<unk>", *model.tokens]


def test_the_kept_utterances_are_of_the_held_out_speakers():
    references = read_text(RECIPE / "refs.txt")
    logprobs = np.load(RECIPE / "logprobs.npz")
    assert list(references) == logprobs.files
    assert {name.split("-")[0] for name in references} == HELD_OUT
    assert {logprobs[name].shape[1] for name in references} == {43}


@pytest.mark.parametrize("head", ["rnnt", "tdt"])
def test_greedy_reads_held_out_speakers(head):
    """On all 24 they say 23 % wrong; weights that do not fit say 100 %."""
    model = load_transducer(RECIPE / "model.npz", head)
    logprobs = np.load(RECIPE / "logprobs.npz")
    references = read_text(RECIPE / "refs.txt")
    names = sorted(references, key=lambda name: len(references[name]))[-2:]
    options = TransducerOptions(strategy="greedy")
    decoder = TransducerDecoder(model, input="features", options=options)
    found = decoder.decode([logprobs[name] for name in names])
    guesses = {n: hyp.text.split() for n, hyp in zip(names, found, strict=True)}
    wer = score_texts({name: references[name] for name in names}, guesses).wer
    assert wer < 40.0, guesses


def test_the_readme_says_what_training_found():
    notes = json.loads((RECIPE / "training.json").read_text("utf-8"))
    page = (RECIPE / "README.md").read_text("utf-8")
    for head, found in notes["greedy WER % on held-out speakers"].items():
        cells = " | ".join(f"{wer:.2f}" for wer in found.values())
        assert f"| `{head}`, greedy | {cells} |" in page
    assert f"{notes['steps']:,} batches" in page
