"""A module with the API of riva-asrlib-decoder 0.4.4, as far as the adapter goes.

Its configuration has the attributes and types of the real one and no others (read off
the wheel for Python 3.12, whose configuration needs no GPU). It reads the files that
the adapter wrote, and decodes them with our search.
"""

import types

import numpy as np
from wfst_searches import walk_back

from wfstdec import CompiledBoosts, WfstOptions, from_openfst, token_table
from wfstdec.boost.compiled import compile_word_boosts
from wfstdec.graph.arcs import LABEL_MASK
from wfstdec.search.backend import make_backend
from wfstdec.wfst.options import BACKENDS


def record(**fields):
    """A class whose objects have these attributes, of these types, and no others."""

    class Record:
        def __init__(self):
            for name, value in fields.items():
                made = value() if isinstance(value, type) else value
                object.__setattr__(self, name, made)

        def __setattr__(self, name, value):
            kind = type(getattr(self, name))  # AttributeError where there is none
            if not isinstance(value, (int, float) if kind is float else kind):
                raise TypeError(f"{name}: incompatible function arguments")
            object.__setattr__(self, name, value)

    return Record


DecoderConfig = record(
    aux_q_capacity=-1,
    blank_ilabel=-1,
    blank_penalty=0.0,
    default_beam=15.0,
    lattice_beam=10.0,
    length_penalty=0.0,
    main_q_capacity=-1,
    max_active=10000,
    ntokens_pre_allocated=1000000,
)
PostprocessorConfig = record(
    acoustic_scale=1.0, lm_scale=1.0, nbest=1, word_ins_penalty=0.0
)
OnlineConfig = record(
    decoder_opts=DecoderConfig,
    determinize_lattice=True,
    frame_shift_seconds=3.4028234663852886e38,
    lattice_postprocessor_opts=PostprocessorConfig,
    max_batch_size=400,
    num_channels=800,
    num_decoder_copy_threads=2,
    num_post_processing_worker_threads=-1,
    use_final_probs=True,
    use_lattice_postprocessor=True,
)
Config = record(n_input_per_chunk=50, online_opts=OnlineConfig)


class Decoder:
    def __init__(self, config, fst, words, num_tokens):
        assert isinstance(fst, str) and isinstance(words, str)
        opts = config.online_opts
        assert opts.num_channels >= 2 * opts.max_batch_size
        assert opts.frame_shift_seconds < 1
        self.config = config
        tokens = token_table(["<blank>", *(f"t{i}" for i in range(1, num_tokens))])
        self.graph = from_openfst(fst, tokens=tokens, words=words)

    def paths(self, padded, lengths):
        assert padded.dtype == np.float32 and padded.ndim == 3
        assert padded.flags.c_contiguous
        assert lengths.dtype == np.int64 and lengths.shape == (len(padded),)
        assert len(padded) <= self.config.online_opts.max_batch_size
        opts = self.config.online_opts.decoder_opts
        options = WfstOptions(opts.default_beam, opts.max_active)
        none = CompiledBoosts(compile_word_boosts(None, {})[0])
        for logprobs, length in zip(padded, lengths, strict=True):
            search = make_backend(BACKENDS, "reference", self.graph).start(
                options, none
            )
            search.advance(np.ascontiguousarray(logprobs[:length]))
            arcs = walk_back(search)
            yield self.graph.arcs[arcs], search.finish()

    def decode_nbest(self, padded, lengths):
        found = []
        for arcs, path in self.paths(padded, lengths):
            labels = arcs["ilabel"] & np.uint32(LABEL_MASK)
            best = types.SimpleNamespace(
                words=[0, *arcs["olabel"].tolist()],
                ilabels=labels[labels > 0].tolist(),
                score=path.search_cost,
            )
            found.append([best])
        return found


def module():
    """Module that the adapter imports; a test may change it."""
    return types.SimpleNamespace(
        BatchedMappedDecoderCudaConfig=Config, BatchedMappedDecoderCuda=Decoder
    )
