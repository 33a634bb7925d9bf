"""Scripts around the library, run from the repository's root; nothing is installed."""
