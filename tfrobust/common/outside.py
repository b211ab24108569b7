"""Arguments that name something outside of the program: local files, and downloads, which a user can forbid.

A recipe of someone else may set such arguments. The commands list them in a dry run, and forbid downloads unless a
flag allows them.
"""

import contextlib
from collections.abc import Iterator
from typing import Annotated

from tfrobust.errors import InputError

_MARK = object()
# A file or a folder, or a text that may name one.
LocalPath = Annotated[str, _MARK]
# True downloads what is missing.
Download = Annotated[bool, _MARK]
# Arguments of a constructor, of which `weights` names a file or a download.
ForeignArguments = Annotated[dict, _MARK]

_forbidden = False


def is_marked(hint) -> bool:
    """Return True if an annotation, with its extras, is one of the above or has one as a part."""
    parts = (*getattr(hint, "__metadata__", ()), *getattr(hint, "__args__", ()))
    return _MARK in parts or any(map(is_marked, parts))


@contextlib.contextmanager
def downloads(allowed: bool) -> Iterator[None]:
    """Forbid downloads within the context, unless they are allowed."""
    global _forbidden
    before, _forbidden = _forbidden, not allowed
    try:
        yield
    finally:
        _forbidden = before


def require_download(item: str) -> None:
    """Raise InputError if downloads are forbidden; to be called right before one begins.

    Args:
        item: the object of the download, and the argument that names it.
    """
    if _forbidden:
        raise InputError(f"{item} would be downloaded: add --allow_downloads if you trust the configuration.")
