"""One utterance through any backend, whether it takes them one by one or in batches."""

from wfstdec.search.contract import BatchBackend


class _BatchOfOne:
    def __init__(self, batch):
        self._batch = batch

    def advance(self, logprobs):
        self._batch.advance([logprobs])

    def finish(self):
        return self._batch.finish()[0]


def start_one(backend, options, boosts):
    """An utterance under way."""
    if isinstance(backend, BatchBackend):
        return _BatchOfOne(backend.start_batch(options, [boosts]))
    return backend.start(options, boosts)
