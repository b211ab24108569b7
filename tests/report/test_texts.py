"""Compare reports and comparisons with the text in texts/, which `python -m report.texts` writes anew."""

import pytest
from report import texts


@pytest.mark.parametrize("name", texts.NAMES)
def test_a_report_says_what_is_stored(name):
    assert texts.text(name) == texts.path(name).read_text("utf-8")


def test_no_text_is_stored_in_vain():
    assert {*texts.FOLDER.iterdir()} == {*map(texts.path, texts.NAMES)}
