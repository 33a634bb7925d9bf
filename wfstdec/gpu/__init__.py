"""What searches on a GPU share: the device, its memory, compiling, log-probs on it."""
