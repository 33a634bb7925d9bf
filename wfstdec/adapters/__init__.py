"""Interfaces of other decoders over our searches: users change one import.

from wfstdec.adapters.pyctcdecode import build_ctcdecoder
from wfstdec.adapters.torchaudio import ctc_decoder
"""
