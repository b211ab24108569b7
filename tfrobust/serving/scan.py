"""The command `python -m tfrobust.serving.scan DIR ...`, which checks SavedModels before anything is loaded.

The check is an allowlist: everything that is not known to be harmless is refused, in the functions of the library as in
the graph. See `tfrobust.security.saved_models.scan` for what is checked, and `tfrobust.security.program_graph` for
the list. tfrobust scans every SavedModel before it opens it; this module is for other programs, and for use on the
command line.
"""

import sys

from tfrobust.security.saved_models import check, scan

__all__ = ["check", "main", "scan"]

_DONE, _WRONG_INPUT = 0, 2


def main(directories: list[str] | None = None) -> int:
    """Print the findings in each folder, one per line.

    Args:
        directories: instead of sys.argv[1:].

    Returns:
        0: all of them may be loaded; 2: at least one may not, or there is nothing to scan.
    """
    directories = sys.argv[1:] if directories is None else directories
    if not directories or any(name.startswith("-") for name in directories):
        print("usage: python -m tfrobust.serving.scan DIR ...   (folders of SavedModels)", file=sys.stderr)
        return _WRONG_INPUT
    code = _DONE
    for directory in directories:
        try:
            lines = [f"{finding.evidence}. {finding.remedy}" for finding in scan(directory)]
        except OSError as error:
            lines = [str(error)]
        for line in lines:
            print(f"{directory}: {line}", file=sys.stderr)
        if lines:
            code = _WRONG_INPUT
        else:
            print(f"{directory}: nothing found; it may be loaded")
    return code


if __name__ == "__main__":
    sys.exit(main())
