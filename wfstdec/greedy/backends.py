"""The backends of the greedy decoder, for `search.backends.make_backend`."""

BACKENDS = {
    "reference": "wfstdec.greedy.reference:ReferenceBackend",
    "cpu": "wfstdec.greedy.cpu.backend:CpuBackend",
}
"""Name to module, and what makes the backend of a `reference.Searched` there."""
