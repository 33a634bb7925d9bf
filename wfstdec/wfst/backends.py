"""The backends of the WFST decoder, for `search.backends.make_backend`."""

BACKENDS = {
    "reference": "wfstdec.wfst.reference:ReferenceBackend",
    "cpu": "wfstdec.wfst.cpu.backend:CpuBackend",
    "cuda": "wfstdec.wfst.gpu.cuda:backend_for",
}
"""Name to module, and what makes the backend of a graph there. When `"auto"` takes
`"cuda"`, `choice.py` says."""
