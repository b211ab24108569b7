"""The code is in tfrobust.commands.serve; this path stays importable."""

import sys

from tfrobust.commands.serve import main

if __name__ == "__main__":
    sys.exit(main())
