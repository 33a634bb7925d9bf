"""What every decoder shares: batches and chunks, log-probs, options, hypotheses."""
