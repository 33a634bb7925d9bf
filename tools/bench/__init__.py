"""Benchmarks: the same speech to several decoders, answers before times.

Importing this package limits the libraries below NumPy to one thread, which they only
heed before they are loaded.
"""

import os

for _name in ("OMP", "MKL", "OPENBLAS", "NUMBA"):
    os.environ[f"{_name}_NUM_THREADS"] = "1"
