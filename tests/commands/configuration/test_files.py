"""Reading gin text: nothing runs, everything wrong is one line."""

import pytest
import stored

from tfrobust.commands.configuration import files
from tfrobust.commands.configuration.statements import Macro, Reference
from tfrobust.errors import InputError


def write(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def complaint(call, *arguments, **keywords) -> str:
    with pytest.raises(InputError) as caught:
        call(*arguments, **keywords)
    message = str(caught.value)
    assert "\n" not in message and len(message) <= 300, message
    return message


def test_statements_in_order_with_inert_values(tmp_path):
    path = write(
        tmp_path,
        "a.gin",
        "EPSILON = 0.2\nMETHOD = @methods.ascl.ASCL\ntrain/PGD.threat = @ThreatModel()\n"
        "ASCL:\n  weights = {'ce': 1.0, 'kl': @a/b/Decay()}\n  sizes = [1, (2, %EPSILON)]\n",
    )
    epsilon, method, threat, weights, sizes = files.read([path])
    assert (epsilon.macro, epsilon.value, epsilon.origin) == ("EPSILON", 0.2, f"{path}:1")
    assert method.value == Reference("", "methods.ascl.ASCL", False)
    assert (threat.scope, threat.selector, threat.argument) == ("train", "PGD", "threat")
    assert threat.value == Reference("", "ThreatModel", True) and threat.macro is None
    assert weights.value == {"ce": 1.0, "kl": Reference("a/b", "Decay", True)}
    assert sizes.value == [1, (2, Macro("EPSILON"))] and sizes.origin == f"{path}:6"


def test_flags_come_last(tmp_path):
    path = write(tmp_path, "a.gin", "SEED = 1\n")
    bindings = files.read([path], ["SEED = 2", "PGD.steps=3"])
    assert [item.value for item in bindings] == [1, 2, 3]
    assert [item.from_flag for item in bindings] == [False, True, True]


def test_an_included_file_is_read_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "base.gin", "SEED = 0\n")
    write(tmp_path, "part.gin", "include 'base.gin'\nEPOCHS = 3\n")
    write(tmp_path, "run.gin", "include 'base.gin'\nSEED = 7\ninclude 'part.gin'\n")
    values = {item.macro: item.value for item in files.read(["run.gin"])}
    assert values == {"SEED": 7, "EPOCHS": 3}


def test_includes_that_double_or_go_in_a_circle(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "0.gin", "SEED = 0\n")
    for level in range(1, 60):
        write(tmp_path, f"{level}.gin", f"include '{level - 1}.gin'\ninclude '{level - 1}.gin'\n")
    assert len(files.read(["59.gin"])) == 1
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "a.gin", "include 'b.gin'\n")
    write(tmp_path, "b.gin", "include './a.gin'\n")
    assert "a.gin > b.gin > a.gin" in complaint(files.read, ["a.gin"])


@pytest.mark.parametrize(
    "line", ["import os", "from os import path", "import os as fine", "from __gin__ import dynamic_registration"]
)
def test_imports_are_refused_also_in_an_included_file(tmp_path, monkeypatch, line):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "inner.gin", f"SEED = 1\n{line}\n")
    write(tmp_path, "outer.gin", "include 'inner.gin'\n")
    message = complaint(files.read, ["outer.gin"])
    assert message.startswith("inner.gin:2:") and "must not import" in message and "--gin_import" in message
    assert "one value" in complaint(files.read, [], [line])


def test_an_import_behind_a_semicolon_is_refused(tmp_path):
    complaint(files.read, [write(tmp_path, "a.gin", "SEED = 1; import os\n")])


@pytest.mark.parametrize("target", ["../../etc/passwd", "/etc/passwd", "/dev/zero", "a.gin\\0.txt", ""])
def test_only_gin_files_are_included(tmp_path, target):
    message = complaint(files.read, [write(tmp_path, "a.gin", f"include '{target}'\n")])
    assert "gin file" in message and "root:" not in message


def test_missing_file_names_the_places_and_the_nearest(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "folders", lambda: [tmp_path / "gin"])
    write(tmp_path, "gin/ascl_leaked.gin", "")
    message = complaint(files.read, ["gin/ascl_leakd.gin"])
    assert "nearest: gin/ascl_leaked.gin" in message and str(tmp_path / "gin")[:40] in message


def test_found_as_given_then_below_gin(tmp_path, monkeypatch):
    ours, hers = tmp_path / "ours", tmp_path / "hers"
    monkeypatch.setattr(files, "folders", lambda: [ours])
    write(ours, "eval/pgd.gin", "SEED = 1\n")
    hers.mkdir()
    monkeypatch.chdir(hers)
    assert files.find("gin/eval/pgd.gin", "x") == files.find("eval/pgd.gin", "x") == ours / "eval/pgd.gin"
    write(hers, "gin/eval/pgd.gin", "SEED = 2\n")
    assert files.read(["gin/eval/pgd.gin"])[0].value == 2


@pytest.mark.parametrize("text, part", stored.rows(globals(), "text_that_is_no_gin_is_one_line_with_its_place"))
def test_text_that_is_no_gin_is_one_line_with_its_place(tmp_path, text, part):
    path = write(tmp_path, "a.gin", text)
    message = complaint(files.read, [path])
    assert path in message and part in message


@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16"])
def test_files_of_windows(tmp_path, codec):
    path = tmp_path / "a.gin"
    path.write_bytes("EPOCHS = 3\r\nSEED = 1\r\n".encode(codec))
    if codec == "utf-16":
        assert "is text in UTF-16; save it as UTF-8" in complaint(files.read, [str(path)])
        return
    bindings = files.read([str(path)])
    assert [(binding.macro, binding.value, binding.origin) for binding in bindings] == [
        ("EPOCHS", 3, f"{path}:1"),
        ("SEED", 1, f"{path}:2"),
    ]


def test_binary_and_huge_files(tmp_path):
    (tmp_path / "a.gin").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "b.gin").write_bytes(b"#" * 2_000_000)
    assert "UTF-16" in complaint(files.read, [str(tmp_path / "a.gin")])
    assert "the limit for a gin file" in complaint(files.read, [str(tmp_path / "b.gin")])


@pytest.mark.parametrize("text, value", stored.rows(globals(), "fractions_are_numbers"))
def test_fractions_are_numbers(tmp_path, text, value):
    if value is None:
        complaint(files.read, [], [text])
        return
    assert files.read([], [text])[0].value == value
    lines = files.read([write(tmp_path, "a.gin", f"SEED = 1\n{text}\nSTEPS = 2\n")])
    assert [binding.value for binding in lines] == [1, value, 2] and lines[2].origin.endswith(":3")
