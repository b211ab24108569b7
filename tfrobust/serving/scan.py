"""The command `python -m tfrobust.serving.scan MODEL ...`, which checks models before anything is loaded.

The check is an allowlist: everything that is not known to be harmless is refused, in the functions of the library as in
the graph. See `tfrobust.security.saved_models.scan` for what is checked, and `tfrobust/security/operations.toml`
for the list; LiteRT files (`.tflite`) are scanned by `tfrobust.security.litert_files.scan`. tfrobust scans every model
before it opens it; this module is for other programs, and for use on the command line.
"""

import sys

from tfrobust.security import litert_files
from tfrobust.security.saved_models import check, scan

__all__ = ["check", "main", "scan"]

_DONE, _WRONG_INPUT = 0, 2


def main(models: list[str] | None = None) -> int:
    """Print the findings in each model, one per line.

    Args:
        models: folders of SavedModels and LiteRT files, instead of sys.argv[1:].

    Returns:
        0: all of them may be loaded; 2: at least one may not, or there is nothing to scan.
    """
    models = sys.argv[1:] if models is None else models
    if not models or any(name.startswith("-") for name in models):
        kinds = "folders of SavedModels, or .tflite files"
        print(f"usage: python -m tfrobust.serving.scan MODEL ...   ({kinds})", file=sys.stderr)
        return _WRONG_INPUT
    code = _DONE
    for model in models:
        scanned = litert_files.scan if litert_files.is_litert(model) else scan
        try:
            lines = [f"{finding.evidence}. {finding.remedy}" for finding in scanned(model)]
        except OSError as error:
            lines = [str(error)]
        for line in lines:
            print(f"{model}: {line}", file=sys.stderr)
        if lines:
            code = _WRONG_INPUT
        else:
            print(f"{model}: nothing found; it may be loaded")
    return code


if __name__ == "__main__":
    sys.exit(main())
