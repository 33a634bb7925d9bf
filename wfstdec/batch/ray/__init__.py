"""Batch jobs on a Ray cluster: rows of a manifest to rows of Parquet.

    run_rows("logprobs.parquet", partial(DecodeRows, decoder), "words", address="auto")
    run_rows("shards/", partial(TranscribeRows, make_transcriber), "words",
             options=RayOptions(actors=8, threads=2), restart=Restart(resume=True))

`DecodeRows` and `TranscribeRows` are classes for `Dataset.map_batches`: each actor has
one model and one decoder. `run_rows` does the rest. Needs the extra `ray`.
"""

from wfstdec.lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__, __file__)
