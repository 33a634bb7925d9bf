"""Other people's decoders that only benchmarks and tests use.

riva              riva-asrlib-decoder: Kaldi's decoder for NVIDIA GPUs, on our graphs
nemo_ctc          NeMo's batched CTC beam search with a token language model
flashlight_calls  flashlight-text as torchaudio calls it
nemo_transducer   NeMo's batched searches for transducers, on our models

Those that `wfstdec compare` takes are in `wfstdec/compare/peers`.
"""
