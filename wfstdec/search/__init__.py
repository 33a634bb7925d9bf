"""Parts shared by all decoders: batches, chunks, log-probs, options, hypotheses."""
