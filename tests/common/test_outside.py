"""Which arguments name files and downloads, and how downloads are forbidden."""

import typing  # noqa: F401

import pytest
import stored

from tfrobust.common import outside
from tfrobust.errors import InputError


@pytest.mark.parametrize("hint, marked", stored.rows(globals(), "the_mark_is_found_inside_of_an_annotation"))
def test_the_mark_is_found_inside_of_an_annotation(hint, marked):
    assert outside.is_marked(hint) is marked


def test_downloads_are_allowed_except_where_they_are_forbidden():
    outside.require_download("data")
    with outside.downloads(False):
        with pytest.raises(InputError, match="data would be downloaded: add --allow_downloads"):
            outside.require_download("data")
        with outside.downloads(True):
            outside.require_download("data")
    outside.require_download("data")
