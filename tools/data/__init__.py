"""Scripts that make data: synthetic speech, language models, what is shipped."""
