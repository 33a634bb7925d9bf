"""Command line of wfstdec: thin commands over the library."""
