"""The command `wfstdec`: thin over the library."""
