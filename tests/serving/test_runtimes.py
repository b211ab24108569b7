"""An export read by programs that are not ours: saved_model_cli, OpenVINO, and the real TensorFlow Serving."""

import importlib.util
import io
import pathlib
import shutil
import socket
import subprocess
import sys
import tarfile
import time

import numpy as np
import pytest

from tfrobust.serving.client import Client, transport
from tfrobust.serving.export import golden, probe
from tfrobust.serving.server import recipes

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("package", ["tfrobust", "keras", "tf_keras"])
def test_the_clean_process_has_neither_tfrobust_nor_keras(package):
    """`verify` runs behind this finder; the packages are installed, and still cannot be imported."""
    specification = probe.RefuseImports().find_spec(f"{package}.models")
    with pytest.raises(ModuleNotFoundError, match="refused in this process"):
        importlib.util.module_from_spec(specification)
    assert probe.RefuseImports().find_spec("tensorflow") is None


def test_an_earlier_tensorflow_has_returned_the_same():
    """Recorded by tools/golden/record_other_tensorflow.py in an environment of its own."""
    with tarfile.open(ROOT / "tests" / "golden" / "earlier.tar.xz") as archive:
        inside = {
            name: archive.extractfile(f"earlier/1/{name}").read() for name in (probe.GOLDEN_FILE, probe.REPORT_FILE)
        }
    expected = np.load(io.BytesIO(inside[probe.GOLDEN_FILE]))
    with np.load(ROOT / "tests" / "golden" / "other_tensorflow.npz") as recorded_outputs:
        for name in probe.PREDICTIONS:
            np.testing.assert_allclose(recorded_outputs[name], expected[name], rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(recorded_outputs[f"bytes/{name}"], expected[name], rtol=1e-5, atol=1e-6)
        assert recorded_outputs["report"].tobytes() == inside[probe.REPORT_FILE]
        assert f"TensorFlow {recorded_outputs['tensorflow']}" in (
            ROOT / "tfrobust" / "guides" / "serving.md"
        ).read_text("utf-8")


@pytest.fixture(scope="module")
def saved_model_cli():
    from absl.testing import flagsaver
    from tensorflow.python.tools import saved_model_cli

    def run(*arguments):
        with flagsaver.flagsaver():
            saved_model_cli.create_parser().parse_args(list(map(str, arguments))).func()

    return run


def test_saved_model_cli_runs_the_golden_request_and_asks_for_the_report(saved_model_cli, exported, tmp_path, capsys):
    answer = golden.read(exported / "1")
    np.save(tmp_path / "images.npy", answer["images"])
    where = ("run", "--dir", exported / "1", "--tag_set", "serve", "--signature_def")
    saved_model_cli(*where, "serving_default", "--inputs", f"images={tmp_path}/images.npy", "--outdir", tmp_path)
    outputs = {name: np.load(tmp_path / f"{name}.npy") for name in probe.PREDICTIONS}
    assert probe.differences(answer, outputs) == []
    saved_model_cli(*where, "robustness_report", "--input_exprs", 'request=["a"]')
    assert "tfrobust/robustness_report/1" in capsys.readouterr().out


def test_openvino_agrees(exported):
    """A runtime that shares no code with TensorFlow."""
    openvino = pytest.importorskip("openvino", reason="openvino, of the extra `test`, is missing")
    answer = golden.read(exported / "1")
    model = openvino.Core().read_model(str(exported / "1"))
    # It reads the default signature alone: neither `serving_bytes` nor `robustness_report`, which take text.
    assert [tensor.any_name for tensor in model.inputs] == ["images"]
    # On a processor that has bfloat16 it would take that by itself, and agree to two digits.
    outputs = openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(
        {"images": answer["images"]}
    )
    for name in probe.PREDICTIONS:
        np.testing.assert_allclose(outputs[name], answer[name], rtol=1e-5, atol=1e-5)


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@pytest.fixture
def real(exported, tmp_path):
    """The real TensorFlow Serving with `small`: (REST URL, gRPC URL); skipped, with the reason, where there is none."""
    ports = {"rest_port": free_port(), "grpc_port": free_port()}
    docker, binary = shutil.which("docker"), shutil.which("tensorflow_model_server")
    if binary is None:
        if docker is None:
            pytest.skip(
                "the real TensorFlow Serving was not run: neither docker nor tensorflow_model_server is installed"
            )
        if subprocess.run([docker, "version"], capture_output=True).returncode != 0:
            pytest.skip("the real TensorFlow Serving was not run: docker is installed, but its daemon does not answer")
        if subprocess.run([docker, "image", "inspect", recipes.IMAGE], capture_output=True).returncode != 0:
            pytest.skip(f"the real TensorFlow Serving was not run: docker has no image {recipes.IMAGE}; docker pull it")
    command = [sys.executable, "-m", "tfrobust", "serve", str(exported), "--label=small:stable=1"]
    command += [f"--config_dir={tmp_path}/config", *(f"--{name}={port}" for name, port in ports.items())]
    process = subprocess.Popen([*command, *(["--all_interfaces"] if binary and not docker else [])])
    try:
        yield f"http://127.0.0.1:{ports['rest_port']}", f"grpc://127.0.0.1:{ports['grpc_port']}"
    finally:
        process.terminate()
        process.wait(60)


def test_the_real_server_answers_the_golden_request(real, exported, report):
    answer = golden.read(exported / "1")
    for url in real:
        with Client(url, "small", label="stable") as client:
            for _ in range(120):
                try:
                    outputs = client.predict(answer["images"])
                    break
                except (transport.ServerUnavailable, ValueError):
                    time.sleep(0.5)
            for name in probe.PREDICTIONS:
                np.testing.assert_allclose(outputs[name], answer[name], rtol=1e-5, atol=1e-6)
            assert client.report_text() == report.to_json()
            assert client.status()[0]["state"] == "AVAILABLE" and client.metadata()["version"] == 1
