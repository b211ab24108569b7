"""Test the walls around a rehearsed model: Python's hook, and the kernel's rules."""

import json
import pathlib
import subprocess
import sys

import pytest
import stored

import tfrobust
from tfrobust.security import walls

# Event -> (its arguments, what is refused); "" where nothing is. IN and OUT are files, TEMPORARY is a folder.
EVENTS = stored.cases(__file__, "events", globals())


@pytest.mark.first
@pytest.mark.parametrize("name", EVENTS)
def test_the_hook(tmp_path, name):
    places = {"IN": tmp_path / "model" / "file", "OUT": tmp_path / "out", "LINK": tmp_path / "model" / "link"}
    places["TEMPORARY"] = tmp_path / "temporary"
    (tmp_path / "model").mkdir()
    for file in ("IN", "OUT"):
        places[file].write_text("")
    places["LINK"].symlink_to(places["OUT"])
    event, arguments, fault = EVENTS[name]

    def put(text):
        for key, path in places.items():
            text = text.replace(key, str(path))
        return text

    hook = walls.Hook([tmp_path / "model", *walls.installation()], [places["TEMPORARY"]])
    arguments = tuple(put(argument) if isinstance(argument, str) else argument for argument in arguments)
    if not fault:
        hook(event, arguments)
        assert hook.refused == []
        return
    with pytest.raises(PermissionError, match="^it "):
        hook(event, arguments)
    verb = fault.rpartition(" ")[0]
    assert hook.refused == [put(fault) if len(put(fault)) < 60 else f"{verb} {put(fault.rpartition(' ')[2])[-60:]}"]


_PROGRAM = stored.text(globals(), "program")


@pytest.mark.first
def test_the_walls_of_a_process(tmp_path):
    for folder in ("model", "temporary"):
        (tmp_path / folder).mkdir()
    (tmp_path / "model" / "file").write_text("")
    (tmp_path / "out").write_text("")
    root = pathlib.Path(tfrobust.__file__).parents[1]
    arguments = [str(root), *(str(tmp_path / name) for name in ("model", "temporary", "out"))]
    ran = subprocess.run([sys.executable, "-P", "-c", _PROGRAM, *arguments], capture_output=True, timeout=60, cwd=root)
    done, refused = json.loads(ran.stdout)
    kernel = walls.landlock_version() > 0
    expected = {"read": False, "write": False, "model": True, "temporary": True, "import": True}
    expected |= {"C reads": not kernel, "C reads the model": True, "C writes": not kernel, "C runs": not kernel}
    assert done == expected
    assert [line.rpartition(" ")[0] for line in refused] == ["it reads", "it writes to"]
