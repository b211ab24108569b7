"""The command share, and models named hf://owner/name, against a stand-in of the Hugging Face Hub."""

import pathlib
import re
import sys
import tarfile

import pytest
from hub_stand_in import StandIn, identity

from tfrobust.commands import evaluate, share
from tfrobust.errors import Failure, InputError
from tfrobust.serving import hub
from tfrobust.serving.export import probe, publish

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    """A folder with an export: earlier/1."""
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(GOLDEN / "earlier.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "earlier"


@pytest.fixture
def stand_in(monkeypatch, tmp_path):
    """A running stand-in, which huggingface_hub takes for the Hub; its cache is empty and there is no token."""
    constants = pytest.importorskip("huggingface_hub.constants")
    with StandIn().running() as running:
        monkeypatch.setattr(constants, "ENDPOINT", running.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", running.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HOME", str(tmp_path / "home"))
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "home" / "hub"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "home" / "token"))
        monkeypatch.setenv("HF_TOKEN", "hf_of_the_tests")
        yield running


def test_an_export_its_report_and_its_card_are_uploaded_and_come_back(stand_in, earlier, capsys):
    assert share.main([str(earlier), "--repo=me/small", "--license=apache-2.0"]) == 0
    assert capsys.readouterr().out == f"{stand_in.url}/me/small/commit/{identity(0)}\n"
    uploaded = stand_in.files("me/small")
    assert uploaded["README.md"].startswith(b"---\nlibrary_name: tfrobust\nlicense: apache-2.0\n")
    assert "1/assets.extra/robustness_report.html" in uploaded and "1/variables/variables.index" in uploaded
    folder = pathlib.Path(hub.local("hf://me/small"))
    assert folder.parts[-3:] == ("me", "small", "1") and probe.check_sums(folder) == []
    assert not any(path.is_symlink() for path in folder.rglob("*"))


def test_a_version_that_is_uploaded_again_keeps_no_file_of_the_earlier_upload(stand_in, earlier):
    unrelated = {"LICENSE": b"", "10/saved_model.pb": b"ten", "11": b""}
    stand_in.repositories["me/small"] = [unrelated | {"1/assets.extra/vocabulary.txt": b"", "1/variables/old": b""}]
    assert share.main([str(earlier), "--repo=me/small"]) == 0
    uploaded = stand_in.files("me/small")
    published = {f"1/{path.relative_to(earlier / '1')}" for path in (earlier / "1").rglob("*") if path.is_file()}
    assert {*uploaded} == published | {"README.md", *unrelated}


def test_the_newest_version_is_downloaded_unless_another_is_named(stand_in):
    stand_in.repositories["me/small"] = [
        {"9/saved_model.pb": b"nine"},
        {"9/saved_model.pb": b"nine", "10/saved_model.pb": b"ten", "10/other.bin": b"", "my.keras": b"keras"},
    ]
    for name, content in {
        "hf://me/small": b"ten",
        "hf://me/small/9": b"nine",
        f"hf://me/small@{identity(0)}": b"nine",
    }.items():
        folder = pathlib.Path(hub.local(name))
        assert (folder / "saved_model.pb").read_bytes() == content and not (folder / "other.bin").exists()
    assert pathlib.Path(hub.local("hf://me/small/my.keras")).read_bytes() == b"keras"
    with pytest.raises(InputError, match="neither saved_model.pb nor a numbered version"):
        hub.local("hf://me/small/11")


def test_a_model_on_the_hub_with_own_data_needs_an_epsilon_too(stand_in, capsys):
    report = b'{"data": {"source": {"registered_name": "tfrobust>Npz"}}}'
    files = {"1/saved_model.pb": b"", "1/assets.extra/robustness_report.json": report}
    stand_in.repositories["me/small"] = [files]
    assert evaluate.main(["--model=hf://me/small", "--gin_file=gin/eval/quick.gin"]) == 2
    assert "EPSILON" in capsys.readouterr().err


@pytest.mark.rest
def test_a_model_on_the_hub_is_evaluated_after_the_scan(stand_in, earlier, capsys, tmp_path):
    assert share.main([str(earlier), "--repo=me/small"]) == 0
    flags = ["--model=hf://me/small", "--gin_file=gin/eval/quick.gin", "--gin_param=EVALUATORS=[@CleanAccuracy()]"]
    assert evaluate.main([*flags, f"--output={tmp_path}/found"]) == 0
    assert "Clean accuracy" in capsys.readouterr().out
    (snippet,) = re.findall(r"```python\n(.*?)```", stand_in.files("me/small")["README.md"].decode(), re.DOTALL)
    exec(snippet, namespace := {})
    assert namespace["probabilities"].shape == (1, 10)
    files = stand_in.files("me/small")
    stand_in.repositories["me/small"].append({**files, "1/saved_model.pb": b"\x00no program"})
    assert evaluate.main([*flags, f"--output={tmp_path}/refused"]) == 2


def test_with_output_nothing_is_sent(stand_in, earlier, capsys, tmp_path):
    assert share.main([str(earlier / "1"), "--repo=me/small", f"--output={tmp_path}/card"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert stand_in.repositories == {} and (tmp_path / "card" / "README.md").is_file()
    assert lines[0].endswith("  README.md") and lines[-2].endswith("  1/variables/variables.index")


def test_what_cannot_be_shared_or_found_is_said_in_one_line(stand_in, earlier, tmp_path, capsys, monkeypatch):
    with pytest.raises(InputError, match="has no me/small, or it is private"):
        hub.local("hf://me/small")
    with pytest.raises(InputError, match="is not hf://owner/name"):
        hub.local("hf://small")
    assert share.main([str(earlier), "--repo=small"]) == 2
    changed = tmp_path / "changed" / "1"
    changed.mkdir(parents=True)
    for path in (earlier / "1").rglob("*"):
        if path.is_file():
            (changed / path.relative_to(earlier / "1")).parent.mkdir(parents=True, exist_ok=True)
            (changed / path.relative_to(earlier / "1")).write_bytes(path.read_bytes())
    (changed / "fingerprint.pb").write_bytes(b"")
    assert share.main([str(changed), "--repo=me/small"]) == 2
    (changed / probe.GOLDEN_FILE).write_bytes(b"no archive")
    publish.write_sums(changed)
    assert share.main([str(changed), "--repo=me/small"]) == 2
    assert share.main([str(earlier), f"--repo=me/{'n' * 120}"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4 and "fingerprint.pb has been changed" in lines[1]
    assert "has no assets.extra/golden.npz that can be read" in lines[2]
    stand_in.server.server_close()
    monkeypatch.setattr(sys.modules["huggingface_hub.constants"], "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(Failure, match="the Hugging Face Hub: "):
        hub.local("hf://me/small")


def test_a_private_upload_goes_to_no_public_repository(stand_in, earlier, capsys):
    stand_in.repositories["me/public"] = [{}]
    assert share.main([str(earlier), "--repo=me/public", "--private"]) == 2
    assert "me/public exists and is public" in capsys.readouterr().err
    assert stand_in.files("me/public") == {}
    for _ in range(2):
        assert share.main([str(earlier), "--repo=me/private", "--private"]) == 0
    assert stand_in.private == {"me/private"} and "README.md" in stand_in.files("me/private")


def test_a_private_card_is_refused(tmp_path, capsys):
    output = tmp_path / "card"
    assert share.main([str(tmp_path), "--repo=me/small", "--private", f"--output={output}"]) == 2
    assert "--output sends nothing: leave one out." in capsys.readouterr().err and not output.exists()


def test_without_the_package_the_command_says_what_to_install(earlier, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert share.main([str(earlier), "--repo=me/small"]) == 2
    assert evaluate.main(["--model=hf://me/small", "--gin_file=gin/eval/quick.gin"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and all("pip install 'tfrobust[hub]'" in line for line in lines)
