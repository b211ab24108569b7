import os
import shutil
import subprocess
import sysconfig

import numpy as np
import pytest
from tensorflow.core.protobuf import saved_model_pb2

from tfrobust.serving.export import probe, publish, verify

CHECKS = ["checksums", "signatures", "golden request", "warm-up", "report", "clean process"]


@pytest.fixture
def copy(attached, tmp_path):
    return shutil.copytree(attached, tmp_path / "7")


def test_a_clean_process_gets_the_recorded_answers(attached):
    result = verify.verify(attached)
    assert result.problems == ()
    assert result.passed and list(result.checks) == CHECKS


@pytest.mark.parametrize(
    ("name", "tamper", "problem"),
    [
        ("variables/variables.data-00000-of-00001", lambda b: b[:-1] + bytes([b[-1] ^ 1]), "changed"),
        ("assets.extra/robustness_report.json", lambda b: b.replace(b"holds", b"never"), "changed"),
        ("assets.extra/golden.npz", None, "missing"),
        ("assets.extra/stray.txt", lambda b: b"x", "not listed"),
        ("assets.extra/SHA256SUMS", None, "cannot be read"),
        ("assets.extra/SHA256SUMS", lambda b: b[:100], "not listed"),
    ],
)
def test_tampering_is_seen_before_anything_is_loaded(copy, name, tamper, problem):
    path = copy / name
    if tamper is None:
        path.unlink()
    else:
        path.write_bytes(tamper(path.read_bytes() if path.exists() else b""))
    problems = probe.check(copy)
    assert list(problems) == ["checksums"] and any(problem in text for text in problems["checksums"])


def test_tampering_with_new_checksums_is_seen_by_the_answers(copy):
    report = copy / probe.REPORT_FILE
    report.write_text(report.read_text().replace("holds", "never"))
    warmup = copy / probe.WARMUP_FILE
    length = int.from_bytes(warmup.read_bytes()[:8], "little")
    warmup.write_bytes(warmup.read_bytes()[: 16 + length])
    golden = probe.read_golden(copy)
    golden["embedding"][0, 0] += 1e-6
    np.savez(copy / probe.GOLDEN_FILE, **golden)
    publish.write_sums(copy)
    problems = probe.check(copy)
    assert "embedding" in problems["golden request"][0]
    assert any("No warm-up record calls" in text for text in problems["warm-up"])
    assert problems["report"] and not problems["checksums"] and not problems["signatures"]


def test_no_saved_model_is_said_at_once(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no SavedModel"):
        verify.verify(tmp_path)


def test_what_the_clean_process_dies_of_is_reported(copy):
    variables = copy / "variables" / "variables.data-00000-of-00001"
    variables.write_bytes(bytes(byte ^ 255 for byte in variables.read_bytes()))
    publish.write_sums(copy)
    result = verify.verify(copy)
    assert not result.passed and list(result.checks) == ["loading"]
    assert len(result.problems[0]) <= 300
    assert "ended after" in verify.verify(copy, timeout=0.05).problems[0]
    (copy / "saved_model.pb").write_bytes(b"garbage")
    publish.write_sums(copy)
    assert list(verify.verify(copy).checks) == ["scan"]


C_PROGRAM = r"""
#include <stdio.h>
#include <string.h>
#include <tensorflow/c/c_api.h>

static void ignore(void *data, size_t length, void *argument) {}

int main(int count, char **argument) {
  TF_Status *status = TF_NewStatus();
  TF_Graph *graph = TF_NewGraph();
  TF_SessionOptions *options = TF_NewSessionOptions();
  const char *tags[] = {"serve"};
  TF_Session *session =
      TF_LoadSessionFromSavedModel(options, NULL, argument[1], tags, 1, graph, NULL, status);
  if (TF_GetCode(status) != TF_OK) { puts(TF_Message(status)); return 1; }

  static float images[4 * 8 * 8];
  if (fread(images, sizeof(float), 256, stdin) != 256) return 2;
  int64_t shape[] = {4, 8, 8, 1};
  TF_Tensor *input = TF_NewTensor(TF_FLOAT, shape, 4, images, sizeof images, ignore, NULL);
  TF_Output from = {TF_GraphOperationByName(graph, argument[2]), 0};
  TF_Output to = {TF_GraphOperationByName(graph, argument[3]), atoi(argument[4])};
  TF_Tensor *logits = NULL;
  TF_SessionRun(session, NULL, &from, &input, 1, &to, &logits, 1, NULL, 0, NULL, status);
  if (TF_GetCode(status) != TF_OK) { puts(TF_Message(status)); return 3; }
  fwrite(TF_TensorData(logits), 1, TF_TensorByteSize(logits), stdout);

  int64_t one[] = {1};
  TF_TString text[1];
  TF_TString_Init(text);
  TF_TString_Copy(text, "x", 1);
  TF_Tensor *request = TF_NewTensor(TF_STRING, one, 1, text, sizeof text, ignore, NULL);
  TF_Output ask = {TF_GraphOperationByName(graph, argument[5]), 0};
  TF_Output told = {TF_GraphOperationByName(graph, argument[6]), atoi(argument[7])};
  TF_Tensor *report = NULL;
  TF_SessionRun(session, NULL, &ask, &request, 1, &told, &report, 1, NULL, 0, NULL, status);
  if (TF_GetCode(status) != TF_OK) { puts(TF_Message(status)); return 4; }
  TF_TString *answer = TF_TensorData(report);
  fwrite(TF_TString_GetDataPointer(answer), 1, TF_TString_GetSize(answer), stdout);
  return 0;
}
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is missing")
def test_a_c_program_without_python_gets_the_recorded_bits(attached, tmp_path):
    """TensorFlow's own C++ loader, through its C API: there is no Python in the process at all."""
    wheel = os.path.join(sysconfig.get_paths()["purelib"], "tensorflow")
    source, program = tmp_path / "load.c", tmp_path / "load"
    source.write_text("#include <stdlib.h>\n" + C_PROGRAM)
    libraries = [os.path.join(wheel, name) for name in os.listdir(wheel) if ".so" in name]
    flags = [f"-I{wheel}/include", f"-Wl,-rpath,{wheel}", *libraries]
    subprocess.run(["gcc", str(source), "-o", str(program), *flags], check=True)

    model = saved_model_pb2.SavedModel.FromString((attached / "saved_model.pb").read_bytes())
    signatures = model.meta_graphs[0].signature_def
    predict, report = signatures["serving_default"], signatures["robustness_report"]
    names = [
        predict.inputs["images"].name.split(":")[0],
        *predict.outputs["logits"].name.split(":"),
        report.inputs["request"].name.split(":")[0],
        *report.outputs["report"].name.split(":"),
    ]
    golden = probe.read_golden(attached)
    done = subprocess.run([program, attached, *names], input=golden["images"].tobytes(), capture_output=True)
    assert done.returncode == 0, done.stdout[-300:]
    size = golden["logits"].nbytes
    assert done.stdout[:size] == golden["logits"].tobytes()
    assert done.stdout[size:] == (attached / probe.REPORT_FILE).read_bytes()
