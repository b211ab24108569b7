"""Names similar to one that does not exist, for messages."""

import difflib
from collections.abc import Iterable


def nearest(name: str, names: Iterable[str], count: int = 3) -> list[str]:
    """Return the names most similar to `name`, ignoring case.

    Returns:
        The names, the most similar one first; [] if none is similar.
    """
    by_folded: dict[str, str] = {}
    for candidate in sorted(names):
        by_folded.setdefault(candidate.lower(), candidate)
    close = difflib.get_close_matches(name.lower(), by_folded, n=count, cutoff=0.6)
    return [by_folded[folded] for folded in close]
