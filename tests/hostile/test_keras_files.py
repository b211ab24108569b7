"""`.keras` files run nothing, read nothing beside them and allocate nothing that is not in them."""

import os
import pathlib
import re
import zipfile

import pytest
from hostile import keras_files

from tfrobust import saving

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.filterwarnings("ignore:Duplicate name")  # zipfile notices what it writes for `twice.keras`
@pytest.mark.parametrize("name", keras_files.CASES)
def test_the_command_refuses(tmp_path, not_judged, name):
    build, part = keras_files.CASES[name]
    build(tmp_path / name)
    not_judged(model=tmp_path / name, part=part)
    with pytest.raises((ValueError, FileNotFoundError)) as error:
        saving.load(tmp_path / name)
    assert len(str(error.value)) <= 300


@pytest.mark.parametrize("noise", [0, 2**18])
def test_a_bomb_is_refused_before_it_grows(tmp_path, not_judged, monkeypatch, noise):
    """The growth of each part counts, not that of the whole alone, which noise beside it lessens."""
    monkeypatch.setattr("tfrobust.security.archives._LARGEST_UNASKED", 2**20)
    with zipfile.ZipFile(tmp_path / "bomb.keras", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("config.json", "{}")
        archive.writestr("model.weights.h5", bytes(2**22))
        archive.writestr("assets/noise", os.urandom(noise))
    not_judged(model=tmp_path / "bomb.keras", part="would unpack to 419430")


def test_safe_mode_is_never_off_and_keras_is_new_enough():
    """No file of the package turns the guards of Keras and NumPy off, or unpickles."""
    forbidden = re.compile(
        r"safe_mode\s*=\s*False|enable_unsafe_deserialization|allow_pickle\s*=\s*True|pickle\.loads?\(|marshal|"
        r"\beval\(|\bexec\(|os\.system|shell\s*=\s*True|extractall"
    )
    texts = {path.relative_to(ROOT): path.read_text("utf-8") for path in (ROOT / "tfrobust").rglob("*.py")}
    matches = [(path, line) for path, text in texts.items() for line in text.splitlines() if forbidden.search(line)]
    # Annotations of classes that are already imported, as `typing.get_type_hints` reads them.
    # The walls name what they refuse.
    assert [match for match in matches if match[0].name not in ("parameters.py", "walls.py")] == []
    floor = re.search(r'"keras>=(\d+)\.(\d+)', (ROOT / "pyproject.toml").read_text("utf-8"))
    assert tuple(map(int, floor.groups())) >= (3, 14)  # the last known hole was closed in 3.13.1


def test_every_saved_model_is_scanned_before_it_is_loaded():
    """A scan precedes every call of TensorFlow's own loader."""
    calls = {}
    for path in sorted((ROOT / "tfrobust").rglob("*.py")):
        lines = path.read_text("utf-8").splitlines()
        for number, line in enumerate(lines):
            if "tf.saved_model.load(" in line:
                calls[str(path.relative_to(ROOT / "tfrobust"))] = "".join(lines[max(0, number - 3) : number])
    del calls["report/renderers/card.py"]  # a line of the card's text
    # Two are processes of their own without tfrobust; `saved_models` and `verify` scan before they start them.
    assert calls.keys() == {"security/saved_models.py", "security/rehearsal_process.py", "serving/export/probe.py"}
    assert "check(directory)" in calls["security/saved_models.py"]
    assert "rehearse(directory, use)" in calls["security/saved_models.py"]
