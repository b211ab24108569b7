"""One line for a bug report: all that tells, nothing that is private."""

import getpass
import os
import pathlib
import platform
import re

import keras
import numpy as np
import pytest
import stored
import tensorflow as tf

from tfrobust.common import environment


def test_the_line_tells_the_truth_and_no_more():
    line = environment.line()
    for part in (f"keras {keras.__version__}", f"tensorflow {tf.__version__}", f"numpy {np.__version__}", "tfrobust "):
        assert part in line
    assert f"python {platform.python_version()}" in line and f"{os.cpu_count()} processors (" in line
    assert re.search(r"devices: \d+ CPU", line) and "\n" not in line
    for private in (platform.node(), getpass.getuser(), str(pathlib.Path.home())):
        assert not re.search(rf"(^|\W){re.escape(private)}(\W|$)", line)


@pytest.mark.parametrize("text, flags", stored.rows(globals(), "cpu_flags"))
def test_cpu_flags(tmp_path, text, flags):
    (tmp_path / "cpuinfo").write_text(text)
    assert environment.cpu_flags(tmp_path / "cpuinfo") == flags
    assert environment.cpu_flags(tmp_path / "none") == []
