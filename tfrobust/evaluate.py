"""The code is in tfrobust.commands.evaluate; this path stays importable."""

import sys

from tfrobust.commands.evaluate import main, parser, run

__all__ = ["main", "parser", "run"]

if __name__ == "__main__":
    sys.exit(main())
