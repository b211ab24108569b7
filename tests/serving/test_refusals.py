"""Refusals of clients, of exports and of the files for servers, and the messages."""

import pytest
import refusals

from tfrobust.serving.export import saved_model as export


@pytest.mark.parametrize(("call", "message"), refusals.rows(__file__))
def test_what_does_not_fit_is_refused_in_one_line(call, message, arguments, tmp_path):
    def write(**changes):
        export.write_saved_model(tmp_path / "m", **(arguments | changes))

    refusals.check(__file__, call, message, write=write)
    assert not (tmp_path / "m").exists()
