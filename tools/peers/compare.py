"""`wfstdec compare` with all decoders of others that are installed.

    python -m tools.peers.compare --graph graph.npz --tokens tokens.txt ... \
        --logprobs dev.npz --ref dev.txt

Its flags, its table and its files; `tools.peers.ctc` lists the decoders.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence

from tools.peers.ctc import peer_searches
from wfstdec.cli.evaluate import compare, compare_with


def main(argv: Sequence[str] | None = None) -> None:
    """Run a comparison."""
    parser = argparse.ArgumentParser(prog="python -m tools.peers.compare")
    compare.add_arguments(parser)
    args = parser.parse_args(argv)
    logging.basicConfig(level=logging.WARNING if args.quiet else logging.INFO)
    compare_with(args, peer_searches)


if __name__ == "__main__":
    main()
