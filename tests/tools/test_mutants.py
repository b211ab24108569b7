"""The list of planted faults fits the library."""

import pathlib

import mutants
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_the_list_fits_the_library_and_has_faults_of_both_kinds_in_every_package():
    faults = mutants.read()
    drawn = [fault for fault in faults if fault.get("drawn")]
    assert len(faults) >= 60 and len(drawn) >= 30 and len({mutants.key(fault) for fault in faults}) == len(faults)
    folders = {path.parent.name for path in (ROOT / "tfrobust").glob("*/__init__.py")} - {"guides", "keras"}
    assert folders <= {mutants.package(fault) for fault in faults}


def test_a_text_that_is_not_there_once_is_an_error(tmp_path):
    (tmp_path / "tfrobust").mkdir()
    (tmp_path / "tfrobust" / "a.py").write_text("x = 1\ny = 1\n")
    listed = tmp_path / "mutants.toml"
    for old, count in (("x = 2", 0), ("= 1", 2)):
        listed.write_text(f'[[fault]]\nfile = "a.py"\nold = "{old}"\nnew = "z"\n')
        with pytest.raises(ValueError, match=f"a.py holds the old text {count} times"):
            mutants.read(listed, tmp_path)
