"""Other people's interfaces on our searches, so that their users change one import.

from wfstdec.adapters.pyctcdecode import build_ctcdecoder
from wfstdec.adapters.torchaudio import ctc_decoder
"""
