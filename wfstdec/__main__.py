"""`python -m wfstdec`: the command line."""

import sys

from wfstdec.cli.main import main

sys.exit(main())
