import errno
import os
import pathlib
import stat
import subprocess
import sys

import pytest
import stored

from tfrobust.commands import publish as publish_command
from tfrobust.commands import withdraw as withdraw_command
from tfrobust.errors import InputError
from tfrobust.serving.export import probe, publish

# Of the library, of `stored` and of this file, for processes that import it.
PATHS = [str(path) for path in (pathlib.Path(publish.__file__).parents[2], *pathlib.Path(__file__).parents[1::-1])]


@pytest.fixture
def model(tmp_path):
    """A staged directory: publication does not look into it."""
    directory = tmp_path / "staged"
    (directory / "variables").mkdir(parents=True)
    (directory / "assets.extra").mkdir()
    (directory / "saved_model.pb").write_bytes(b"graph")
    (directory / "variables" / "variables.index").write_bytes(b"index")
    (directory / "assets.extra" / "robustness_report.json").write_text("{}")
    return directory


@pytest.fixture
def base(tmp_path):
    return tmp_path / "exported" / "model"


def run(base, model, owner, run="", version=None):
    version = publish.claim(base, owner, version, run=run)
    if not publish.is_published(base, version, owner, run=run):
        publish.publish(model, base, version, owner, run=run)
    return version


def test_a_published_version_is_complete_readable_and_alone(base, model):
    previous = os.umask(0o077)
    try:
        assert run(base, model, "workdir") == 1
    finally:
        os.umask(previous)
    assert os.listdir(base) == ["1"]
    assert probe.check_sums(base / "1") == []
    names = {path.relative_to(base / "1").as_posix() for path in (base / "1").rglob("*") if path.is_file()}
    staged = {path.relative_to(model).as_posix() for path in model.rglob("*") if path.is_file()}
    assert names == staged | {"assets.extra/publication.json", "assets.extra/SHA256SUMS"}
    for path in [base.parent, base, base / "1", *(base / "1").rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o755 if path.is_dir() else 0o644)
    done = subprocess.run(["sha256sum", "-c", "--quiet", "assets.extra/SHA256SUMS"], cwd=base / "1")
    assert done.returncode == 0


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.ENOSYS, errno.EPERM])
def test_without_hard_links_claims_are_still_exclusive(base, model, monkeypatch, number):
    def link(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", link)
    assert publish.claim(base, "first") == 1 and publish.claim(base, "second") == 2
    with pytest.raises(publish.VersionExists, match="claimed by another run"):
        publish.claim(base, "second", 1)
    assert run(base, model, "first") == 1 and run(base, model, "second") == 2
    assert sorted(os.listdir(base)) == ["1", "2"]


def test_a_version_that_is_given_back_is_the_next_ones(base, model):
    assert publish.claim(base, "refused") == 1
    publish.give_back(base, 1, "somebody else")
    assert publish.claim(base, "second") == 2
    publish.give_back(base, 1, "refused")
    publish.give_back(base, 2, "second")
    assert os.listdir(base) == [] and run(base, model, "third") == 1
    publish.give_back(base, 1, "third")
    assert os.listdir(base) == ["1"]


def test_the_same_run_finds_its_version_and_another_takes_the_next(base, model):
    assert run(base, model, "first") == 1
    assert run(base, model, "second") == 2
    assert run(base, model, "first") == 1
    assert run(base, model, "first", run="other evaluation") == 3
    assert run(base, model, "first", run="other evaluation") == 3
    assert run(base, model, "first") == 1
    assert publish.versions(base) == [1, 2, 3]


def test_an_explicit_version_is_refused_unless_this_run_published_it(base, model):
    assert run(base, model, "first", version=7) == 7
    assert run(base, model, "first", version=7) == 7
    for owner, other in [("second", ""), ("first", "other evaluation")]:
        with pytest.raises(publish.VersionExists, match="Version 7 of .* exists"):
            publish.claim(base, owner, 7, run=other)
    assert run(base, model, "second", version=3) == 3
    assert run(base, model, "third") == 8
    with pytest.raises(ValueError, match="integers from 1 on"):
        publish.claim(base, "first", 0)
    assert sorted(os.listdir(base)) == ["3", "7", "8"]


def test_a_version_published_while_the_folder_was_listed_is_not_taken_twice(base, model, monkeypatch):
    run(base, model, "second")
    stale, real = [[], []], publish.versions
    monkeypatch.setattr(publish, "versions", lambda folder: stale.pop() if stale else real(folder))
    assert publish.claim(base, "first") == 2


def test_whatever_has_the_number_is_never_replaced(base, model):
    (base / "1").mkdir(parents=True)
    (base / "2").write_text("a file")
    with pytest.raises(publish.VersionExists):
        publish.claim(base, "first", 1)
    assert publish.claim(base, "first") == 3
    (base / "3").mkdir()
    (base / "3" / "foreign").write_text("put there by hand after the claim")
    with pytest.raises(publish.VersionExists):
        publish.publish(model, base, 3, "first")
    assert run(base, model, "first") == 4
    assert sorted(os.listdir(base)) == ["1", "2", "3", "4"]


def test_claims_are_exclusive_and_taken_up_again(base, model):
    assert publish.claim(base, "first") == 1
    assert (base / ".claim-1").read_text() == "first"
    assert publish.claim(base, "first") == 1
    assert publish.claim(base, "second") == 2
    with pytest.raises(publish.VersionExists, match="claimed by another run; .*remove .claim-1"):
        publish.claim(base, "second", 1)
    with pytest.raises(publish.VersionExists, match="not claimed by this run"):
        publish.publish(model, base, 1, "second")
    # Asking for another number gives the first one back.
    assert publish.claim(base, "first", 5) == 5
    assert sorted(os.listdir(base)) == [".claim-2", ".claim-5"]
    # A claim below the newest version is exchanged, but not for a requested number.
    publish.publish(model, base, 5, "first")
    assert publish.claim(base, "second", 2) == 2 and publish.claim(base, "second") == 6
    assert sorted(os.listdir(base)) == [".claim-6", "5"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, InputError])
def test_an_interrupt_before_the_publication_gives_the_claim_back(base, model, error):
    version = publish.claim(base, "first")
    with pytest.raises(error), publish.holding(base, version, "first"):
        raise error("now")
    assert os.listdir(base) == [] and run(base, model, "second") == 1
    with pytest.raises(error), publish.holding(base, 1, "first"):  # a claim that it does not hold
        raise error("now")
    assert os.listdir(base) == ["1"]


def test_leftovers_of_the_same_owner_go_and_of_others_stay(base, model, monkeypatch):
    def fail(*arguments):
        raise KeyboardInterrupt

    for owner in ("first", "second"):
        version = publish.claim(base, owner)
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(os, "rename", fail)
            publish.publish(model, base, version, owner)
    assert len([name for name in os.listdir(base) if name.startswith(".tmp-")]) == 2
    assert run(base, model, "first") == 1
    assert sorted(os.listdir(base))[1:] == [".tmp-" + publish._temporary_prefix("second")[5:] + "2", "1"]


def test_everything_is_on_the_disk_before_the_name(base, model, monkeypatch):
    version = publish.claim(base, "first")
    synced, real_fsync, real_rename = set(), os.fsync, os.rename

    def fsync(descriptor):
        synced.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        real_fsync(descriptor)

    def rename(source, target):
        assert {str(path) for path in [source, *pathlib.Path(source).rglob("*")]} <= synced
        synced.clear()
        real_rename(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "rename", rename)
    publish.publish(model, base, version, "first")
    assert str(base) in synced


KILLED_EVERYWHERE = stored.text(globals(), "killed_everywhere")


@pytest.mark.parametrize(("version", "expected"), [(None, 1), (4, 4)])
def test_killed_at_any_line_and_run_again_there_is_exactly_one_version(base, model, version, expected):
    """kill -9 at 60 points spread over every line of claim and publication, then the same call again."""
    values = dict(paths=PATHS, version=version, expected=expected)
    code = KILLED_EVERYWHERE.format(**values)
    done = subprocess.run([sys.executable, "-c", code, base, model], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    points, killed = map(int, done.stdout.split())
    assert points > 50 and killed == points


PUBLISHER = stored.text(globals(), "publisher")


def test_publishers_beside_each_other_get_distinct_complete_versions(base, model):
    code = PUBLISHER.format(paths=PATHS)
    command = [sys.executable, "-c", code, str(base), str(model)]
    processes = [subprocess.Popen([*command, f"owner{n}"], stdout=subprocess.PIPE) for n in range(4)]
    taken = [int(line) for process in processes for line in process.communicate()[0].split()]
    assert sorted(taken) == list(range(1, 25)) == publish.versions(base)
    assert sorted(map(int, os.listdir(base))) == sorted(taken)
    assert all(probe.check_sums(base / str(version)) == [] for version in taken)


def test_versions_are_the_folders_whose_names_are_numbers(base):
    assert publish.versions(base) == []
    for name in ("10", "9", ".claim-11", ".tmp-x", "latest", "٣"):
        (base / name).mkdir(parents=True)
    (base / "12").write_text("a file")
    assert publish.versions(base) == [9, 10]


def test_the_number_of_a_file_is_no_version_and_not_given_to_another(base, model):
    base.mkdir(parents=True)
    (base / "2").write_text("a file")
    with pytest.raises(publish.VersionExists, match="Version 2 of .* exists"):
        publish.claim(base, "workdir", 2)
    assert run(base, model, "workdir") == 3 and publish.versions(base) == [3]


def test_a_file_where_the_folder_must_go_is_refused_before_anything_is_trained(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(InputError, match="taken is a file"):
        publish.check_available(tmp_path / "taken" / "model", None, "owner")


def test_a_withdrawn_version_has_no_number_until_it_is_restored(base, model):
    for name in ("one", "two"):
        run(base, model, name, name)
    assert publish.withdraw(base, 2).name == ".withdrawn-2" and publish.versions(base) == [1]
    assert publish.withdrawn(base) == {2: "two"} and publish.withdrawn(base / "none") == {}
    with pytest.raises(publish.VersionExists, match="Version 2 of .* was withdrawn; leave --version out"):
        publish.claim(base, "three", 2)
    run(base, model, "three", "three")
    assert publish.versions(base) == [1, 3]
    assert publish.restore(base, 2).name == "2" and publish.versions(base) == [1, 2, 3] and not publish.withdrawn(base)
    for change, fault in ((publish.restore, "no withdrawn version 2"), (publish.withdraw, "no version 4")):
        with pytest.raises(InputError, match=f"has {fault}; its versions are"):
            change(base, 2 if change is publish.restore else 4)


def test_a_model_may_have_a_number_for_its_name(tmp_path, capsys):
    (tmp_path / "2024" / "1").mkdir(parents=True)
    (tmp_path / "2024" / "1" / "saved_model.pb").touch()
    assert withdraw_command.main([str(tmp_path / "2024")]) == 0 and os.listdir(tmp_path / "2024") == [".withdrawn-1"]
    assert publish_command.main([str(tmp_path / "2024")]) == 2
    assert "2024 holds no evaluated model" in capsys.readouterr().err
    assert withdraw_command.main([str(tmp_path / "2024")]) == 2 and os.listdir(tmp_path) == ["2024"]
    assert "2024 has no published version; name exported/NAME." in capsys.readouterr().err


def test_only_a_published_version_is_withdrawn(base, model, tmp_path, capsys):
    (tmp_path / "photos" / "7").mkdir(parents=True)
    for path in ("photos", "photos/7"):
        assert withdraw_command.main([str(tmp_path / path)]) == 2 and os.listdir(tmp_path / "photos") == ["7"]
        assert f"{path} has no published version; name exported/NAME." in capsys.readouterr().err
    (model / "saved_model.pb").rename(model / "model.tflite")
    run(base, model, "workdir")
    assert withdraw_command.main([str(base / "9")]) == 2
    assert "model has no version 9; its versions are [1]." in capsys.readouterr().err
    assert withdraw_command.main([str(base / "1")]) == 0 and os.listdir(base) == [".withdrawn-1"]
