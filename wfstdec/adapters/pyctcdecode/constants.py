"""The defaults of pyctcdecode 0.5.0, under its names."""

import math

DEFAULT_ALPHA = 0.5
DEFAULT_BETA = 1.5
DEFAULT_UNK_LOGP_OFFSET = -10.0
DEFAULT_BEAM_WIDTH = 100
DEFAULT_HOTWORD_WEIGHT = 10.0
DEFAULT_PRUNE_LOGP = -10.0
DEFAULT_PRUNE_BEAMS = False
DEFAULT_MIN_TOKEN_LOGP = -5.0
DEFAULT_SCORE_LM_BOUNDARY = True

AVG_TOKEN_LEN = 6
"""Words under way that are unknown cost more from so many characters on."""
MIN_TOKEN_CLIP_P = 1e-15
"""No probability counts as less."""
LOG_BASE_CHANGE_FACTOR = 1.0 / math.log10(math.e)
"""Nats of a unit of log10."""
