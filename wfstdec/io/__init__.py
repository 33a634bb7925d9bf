"""Files in and out: log-probs, transcripts, boost lists, results."""
