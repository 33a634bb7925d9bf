"""Scripts that make data: heads on Whisper, language models, what is shipped."""
