"""The code is in tfrobust.commands.gate; this path stays importable."""

import sys

from tfrobust.commands.gate import main

if __name__ == "__main__":
    sys.exit(main())
