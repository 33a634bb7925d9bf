from wfstdec.adapters.torchaudio.decoder import CTCDecoder as CTCDecoder
from wfstdec.adapters.torchaudio.decoder import CTCHypothesis as CTCHypothesis
from wfstdec.adapters.torchaudio.decoder import ctc_decoder as ctc_decoder
from wfstdec.adapters.torchaudio.decoder import (
    download_pretrained_files as download_pretrained_files,
)
from wfstdec.adapters.torchaudio.models import CTCDecoderLM as CTCDecoderLM
from wfstdec.adapters.torchaudio.models import CTCDecoderLMState as CTCDecoderLMState
