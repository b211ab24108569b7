import os
import subprocess
import sys

import pytest

from tfrobust.common import files
from tfrobust.errors import InputError


def test_write_atomically_replaces_the_whole_file(tmp_path):
    path = tmp_path / "a.json"
    files.write_atomically(path, "é" * 1000)
    files.write_atomically(path, b"short")
    assert path.read_bytes() == b"short"
    assert os.listdir(tmp_path) == ["a.json"]


@pytest.mark.parametrize("function", ["replace", "fsync"])
def test_a_failure_leaves_the_old_file_and_no_other(tmp_path, monkeypatch, function):
    path = tmp_path / "a.json"
    path.write_text("old")

    def fail(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, function, fail)
    with pytest.raises(OSError, match="No space"):
        files.write_atomically(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.json"]


def test_the_data_is_on_the_disk_before_the_name_and_the_name_before_the_return(tmp_path, monkeypatch):
    calls = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, name=name, real=real: (calls.append(name), real(*a))[1])
    files.write_atomically(tmp_path / "a", "x")
    assert calls == ["fsync", "replace", "fsync"]


def test_leftovers_of_killed_processes_go_and_those_of_running_ones_stay(tmp_path):
    code = (
        "import os, signal, sys; from tfrobust.common import files\n"
        "with files.replacing(sys.argv[1]) as temporary:\n"
        "    temporary.write_text('half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(files.__file__))))
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "a.json")], env=os.environ | {"PYTHONPATH": root})
    assert len(os.listdir(tmp_path)) == 1
    running = tmp_path / f".tmp-{os.getppid()}-0-a.json"
    running.write_text("someone else is writing")
    files.write_atomically(tmp_path / "a.json", "whole")
    assert sorted(os.listdir(tmp_path)) == sorted(["a.json", running.name])


def test_fsync_tree_reaches_every_file_and_folder(tmp_path, monkeypatch):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_text("x")
    (tmp_path / "top").write_text("x")
    seen = []
    monkeypatch.setattr(files, "fsync_file", lambda path: seen.append(os.path.relpath(path, tmp_path)))
    files.fsync_tree(tmp_path)
    assert seen.index("a/b/file") < seen.index("a/b") < seen.index("a") < seen.index(".")
    assert "top" in seen


def test_the_saved_model_of_a_folder_is_its_own_its_newest_version_or_that_of_a_workdir(tmp_path):
    with pytest.raises(InputError, match="neither saved_model.pb nor a numbered version"):
        files.saved_model_directory(tmp_path)
    for folder, model in (("staged", "staged"), ("9", "9"), ("10", "10"), ("", "")):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "saved_model.pb").touch()
        assert files.saved_model_directory(tmp_path) == tmp_path / model


@pytest.mark.parametrize("address", ["gs://bucket/run", "s3://bucket", "gs:/bucket/run/name", "hdfs+a://x"])
def test_an_object_store_is_refused_in_one_line(address, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"--workdir is \S+, but runs write to folders only") as caught:
        files.check_writable(address, "--workdir")
    assert len(str(caught.value)) <= 300 and list(tmp_path.iterdir()) == []
    for folder in ("runs/a:b", str(tmp_path / "C:"), "gs:"):
        files.check_writable(folder, "--workdir")


def test_a_command_does_not_write_to_an_object_store(capsys):
    from tfrobust.commands import evaluate, train

    for main, *flags, flag in (
        (evaluate.main, "--model=.", "--gin_file=gin/eval/quick.gin", "--output"),
        (train.main, "--gin_file=gin/trades.gin", "--workdir"),
        (train.main, "--gin_file=gin/trades.gin", "--export_dir"),
    ):
        for more in ([], ["--dry_run"]):
            assert main([*flags, *more, f"{flag}=s3://bucket/x"]) == 2
            assert f"{flag} is s3://bucket/x, but runs write to folders only" in capsys.readouterr().err


def test_the_home_of_a_user_is_filled_in_and_other_names_stay(monkeypatch):
    monkeypatch.setenv("HOME", "/h")
    names = ("~/x", "~no_such_user/x", "a~", "x")
    assert [str(files.expanded(name)) for name in names] == ["/h/x", *names[1:]]


def test_text_is_read_without_what_editors_on_windows_add(tmp_path):
    path = tmp_path / "list.txt"
    path.write_bytes("caf\u00e9\r\ntwo\n".encode("utf-8-sig"))
    assert files.read_text(path) == "caf\u00e9\ntwo\n"
    path.write_bytes(b"one\ncaf\xe9\n")
    with pytest.raises(InputError, match=r"list.txt is no text in UTF-8: line 2 has the byte 0xe9; save it as UTF-8\."):
        files.read_text(path)
