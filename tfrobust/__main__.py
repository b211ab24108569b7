"""`python -m tfrobust COMMAND ...`."""

import sys

from tfrobust.commands.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
