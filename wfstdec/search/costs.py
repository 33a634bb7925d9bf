"""The account of costs: what all searches and hypotheses add up in the same way."""

from __future__ import annotations

import numpy as np

NO_CUTOFF = np.float32(np.finfo(np.float32).max)
"""The cutoff where there is none: infinite costs stay over it."""
