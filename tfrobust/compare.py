"""The code is in tfrobust.commands.compare; this path stays importable."""

import sys

from tfrobust.commands.compare import main, parser, run

__all__ = ["main", "parser", "run"]

if __name__ == "__main__":
    sys.exit(main())
