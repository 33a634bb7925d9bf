"""Other people's decoders, for comparisons, benchmarks and tests.

compare           `wfstdec compare` with those of `ctc`
ctc               kaldi-decoder, flashlight-text, pyctcdecode
riva              riva-asrlib-decoder: Kaldi's decoder for NVIDIA GPUs, on our graphs
nemo_ctc          NeMo's batched CTC beam search with a token language model
flashlight_calls  flashlight-text as torchaudio calls it
nemo_transducer   NeMo's batched searches for transducers, on our models
"""
