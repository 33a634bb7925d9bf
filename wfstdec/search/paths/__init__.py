"""Result paths of any search: tokens with frames, words with spans, hypotheses."""
