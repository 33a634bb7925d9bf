"""Parts that all decoders share: batches and chunks, log-probs, options, hypotheses."""
