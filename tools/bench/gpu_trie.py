"""The trie on a GPU against our CPU: rows of `tools.bench.gpu`.

bench = TrieBench(case, args, Gpu())
setting = TrieSetting(beam_size=32, beam=8.0)
expected = bench.expect(setting)                     # by utterance, from the CPU
rows = [*bench.cpu(setting), *bench.ours(setting, expected)]

NeMo's search, which has no lexicon, is compared by `tools.gpu.tokens`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from typing import Any, NamedTuple

from tools.bench.gpu_device import Padded, Timing
from tools.bench.gpu_measure import Measuring, each, phases_of
from tools.bench.report import Row
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.trie.decoder import TrieDecoder
from wfstdec.trie.gpu.batch import DeviceBatch
from wfstdec.trie.gpu.layout import PHASES, form_for
from wfstdec.trie.options import TrieOptions


class TrieSetting(NamedTuple):
    """Setting of a search that is timed over batches, as in `TrieOptions`."""

    beam_size: int
    beam: float


@dataclass(frozen=True, eq=False)
class TrieBench(Measuring):
    """Measures the trie on a case; each method gives rows of figures."""

    @cached_property
    def _cpu(self) -> TrieDecoder:
        """Ours on the CPU, a thread per processor."""
        return self.case.trie_decoder(TrieOptions(lm_scale=self.case.lm_scale), None)

    def _decoder(self, setting: TrieSetting) -> TrieDecoder:
        return self._cpu.with_options(**setting._asdict())

    def expect(self, setting: TrieSetting) -> dict[str, Hypothesis]:
        """Decode all utterances on the CPU."""
        found = self._decoder(setting).decode(self.case.utterances)
        return dict(zip(self.case.speech.logprobs, found, strict=True))

    def cpu(self, setting: TrieSetting) -> Iterator[Row]:
        """Rows per batch for the CPU, a thread per processor."""
        decoder, logprobs = self._decoder(setting), self.case.speech.logprobs
        for size in self.args.batches:
            facts = {"decoder": "cpu trie", "threads": decoder.threads}
            row = self.row(setting, size, **facts)
            names = self.batches(size)
            batches = [[logprobs[name] for name in one] for one in names]
            texts = [one.text for batch in batches for one in decoder.decode(batch)]
            ends = [time.perf_counter()]
            for _ in range(self.args.repeats):
                for batch in batches:
                    decoder.decode(batch)
                ends.append(time.perf_counter())
            seconds = [b - a for a, b in zip(ends, ends[1:], strict=False)]
            yield row | self._times(names, texts, Timing(seconds, seconds))

    def ours(
        self, setting: TrieSetting, expected: dict[str, Hypothesis]
    ) -> Iterator[Row]:
        """Rows per batch; without times where answers are not the CPU's."""
        form = form_for(setting.beam_size, len(self.case.tokens))
        for size in self.args.batches:
            facts = {"decoder": "trie", "dtype": "float32", "threads": form.threads}
            row = self.row(setting, size, **facts)
            decoder = self._decoder(setting)
            decoder._backend = self.gpu.trie_backend(decoder._space)
            names = self.batches(size)
            batches = self._upload(names, "float32")
            run = partial(each, batches, decoder.decode)
            found = run()
            pairs = zip(chain(*names), found, strict=True)
            differ = sum(hypothesis != expected[name] for name, hypothesis in pairs)
            row["differ"] = differ
            if not differ:
                timing = self.gpu.time(run, self.args.repeats)
                row |= self._times(names, [one.text for one in found], timing)
                row |= self._phases(decoder, batches[0])
            yield row

    def _phases(self, decoder: TrieDecoder, batch: Padded) -> Row:
        """Work of a frame, and microseconds of a frame and block by phase."""
        backend: Any = decoder._backend
        chunks = backend.inputs(*batch)
        boosts = decoder._boosts.compile(None, len(chunks))
        lengths = [len(chunk) for chunk in chunks]
        made = backend.device_space, backend._cpu, decoder.options, boosts, lengths
        counts, row = phases_of(lambda: DeviceBatch(*made), chunks, PHASES)
        frames = max(1, counts["frames"])
        work = ("active", "candidates", "entries")
        return row | {f"{name}_per_frame": counts[name] / frames for name in work}
