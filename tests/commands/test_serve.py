"""The command serve: what it writes, what it starts, and what it says where it can start nothing."""

import importlib
import os
import re
import stat
import time

import pytest
import stored
from faults import processes


@pytest.fixture
def serve():
    return importlib.import_module("tfrobust.commands.serve")


@pytest.fixture
def model(tmp_path):
    for version in (1, 3):
        (tmp_path / "exported" / "small" / str(version)).mkdir(parents=True)
        (tmp_path / "exported" / "small" / str(version) / "saved_model.pb").touch()
    return tmp_path / "exported" / "small"


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A folder that is the whole PATH: function that puts a program there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def put(name, text):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)

    return put


@pytest.fixture
def started(serve, monkeypatch):
    commands = []
    monkeypatch.setattr(serve.os, "execvp", lambda program, command: commands.append(command))
    return commands


def test_docker_is_started_with_the_files(serve, model, programs, started, tmp_path, capsys):
    programs("docker", "exit 0")
    assert serve.main([str(model), f"--config_dir={tmp_path}/c", "--label=small:stable=1", "--image=tf:2"]) == 0
    ((program, *rest),) = started
    assert program == "docker" and "tf:2" in rest
    assert f"--mount=type=bind,source={model},target=/models/small,readonly" in rest
    assert not any(flag.startswith("--user=0") for flag in rest)
    files = ["batching_parameters.config", "models.config", "monitoring.config", "nginx.conf"]
    assert sorted(os.listdir(tmp_path / "c")) == files
    text = (tmp_path / "c" / "models.config").read_text()
    assert '"/models/small"' in text and "versions: 1" in text
    assert "grpc_pass grpc://127.0.0.1:8500;" in (tmp_path / "c" / "nginx.conf").read_text()
    assert "--publish=127.0.0.1:8500:8500" in rest
    assert capsys.readouterr().out.startswith("docker run ")


def test_docker_publishes_on_every_interface_if_asked_to(serve, model, tmp_path, capsys):
    assert serve.main([str(model), f"--config_dir={tmp_path}/c", "--write_only", "--all_interfaces"]) == 0
    assert " --publish=8500:8500 --publish=8501:8501 " in capsys.readouterr().out


def test_the_binary_is_started_only_behind_a_firewall(serve, model, programs, started, tmp_path, capsys):
    programs("tensorflow_model_server", "exit 0")
    programs("docker", "exit 1")  # no daemon
    flags = [str(model), f"--config_dir={tmp_path}/c", "--rest_port=18501"]
    assert serve.main(flags) == 2
    assert "listens on every network interface: set --all_interfaces" in capsys.readouterr().err
    assert serve.main([*flags, "--all_interfaces", "--image=tf:2"]) == 2
    assert "--image is without effect" in capsys.readouterr().err and not (tmp_path / "c").exists()
    assert serve.main([*flags, "--all_interfaces"]) == 0
    ((program, *rest),) = started
    assert program.endswith("tensorflow_model_server") and "--rest_api_port=18501" in rest
    assert f'base_path: "{model}"' in (tmp_path / "c" / "models.config").read_text()


@pytest.mark.parametrize(
    "docker, message", [(None, "There is no Docker"), ("exit 1", "Docker's daemon does not respond")]
)
def test_where_nothing_can_be_started_it_says_what_to_install(
    serve, model, programs, docker, message, tmp_path, capsys
):
    if docker:
        programs("docker", docker)
    assert serve.main([str(model), f"--config_dir={tmp_path}/c"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line and "docker pull tensorflow/serving" in line and "tensorflow-model-server" in line
    assert "--development, which is NOT TF Serving" in line
    assert not (tmp_path / "c").exists()


def test_only_a_new_config_dir_is_opened_to_the_server(serve, model, tmp_path):
    (tmp_path / "mine").mkdir(0o700)
    previous = os.umask(0o077)
    try:
        for name in ("mine", "new"):
            assert serve.main([str(model), f"--config_dir={tmp_path / name}", "--write_only"]) == 0
    finally:
        os.umask(previous)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("mine", "new")] == [0o700, 0o755]


def test_a_conversion_is_no_model_that_the_server_loads(serve, model, tmp_path, capsys):
    (model / "3" / "saved_model.pb").rename(model / "3" / "model.tflite")
    assert serve.main([str(model), f"--config_dir={tmp_path}/c", "--write_only"]) == 2
    assert f"{model}/3 has no saved_model.pb" in capsys.readouterr().err and not (tmp_path / "c").exists()


def test_the_key_is_for_the_servers_eyes_only(serve, model, tmp_path):
    (tmp_path / "key.pem").write_text("-----BEGIN KEY-----\n")
    flags = [str(model), f"--config_dir={tmp_path}/c", "--write_only", f"--tls_key={tmp_path}/key.pem"]
    assert serve.main(flags) == 2
    assert serve.main([*flags, f"--tls_certificate={tmp_path}/key.pem"]) == 0
    assert "grpc_pass grpcs://127.0.0.1:8500;" in (tmp_path / "c" / "nginx.conf").read_text()
    path = tmp_path / "c" / "ssl.config"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and 'server_key: "-----BEGIN KEY-----\\n"' in path.read_text()
    assert serve.user().split(":")[0] in (str(path.stat().st_uid), str(os.getuid())) and serve.user()[0] != "0"


@pytest.mark.parametrize("flags, message", stored.rows(globals(), "mistakes_end_with_2"))
def test_mistakes_end_with_2(serve, model, flags, message, tmp_path, capsys):
    (tmp_path / "key.der").write_bytes(b"\x30\x82\xff")
    arguments = [flag.format(model=model, key=tmp_path / "key.der") for flag in flags]
    assert serve.main([*arguments, "--write_only", f"--config_dir={tmp_path}/c"]) == 2
    assert message in capsys.readouterr().err


def test_the_development_server_says_what_it_is_and_answers(tmp_path):
    import tensorflow as tf

    from tfrobust.serving.client import Client

    specification = tf.TensorSpec((None, 2), tf.float32, name="x")
    double = tf.function(lambda x: {"double": 2 * x}, input_signature=[specification])
    tf.saved_model.save(tf.Module(), str(tmp_path / "toy" / "1"), signatures=double)
    flags = [str(tmp_path / "toy"), "--development", "--rest_port=0", "--grpc_port=0"]
    child = processes.start("tfrobust.commands.serve:main", [flags], cwd=tmp_path)
    try:
        for _ in range(2000):
            if (line := child.written()).endswith("\n"):
                break
            time.sleep(0.05)
        (taken,) = re.findall(r"http://127.0.0.1:(\d+)", line)
        again = processes.run("tfrobust.commands.serve:main", [[*flags[:2], f"--rest_port={taken}"]], cwd=tmp_path)
        assert again.code == 2 and f"--rest_port={taken}" in again.err and again.err.count("\n") == 1, again.err
        rest, rpc = re.fullmatch(r"tfrobust development server, NOT TensorFlow Serving: (\S+) (\S+)\n", line).groups()
        for url in (rest, rpc):
            with Client(url, "toy", timeout=20) as client:
                assert client.predict(tf.ones((1, 2)).numpy())["double"].tolist() == [[2.0, 2.0]]
    finally:
        child.kill()
        child.wait()
