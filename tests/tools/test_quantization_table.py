"""The table of what quantization costs: its arithmetic, and its way through reports and files."""

import numpy as np
import pytest
import tensorflow as tf

from oracles import flawed_models, litert_files
from tfrobust.commands import evaluate
from tfrobust.errors import InputError
from tfrobust.security import rehearsal


@pytest.fixture
def tool(load):
    return load("_recipes", "_result_tables", "quantization_table").quantization_table


def _cells(text):
    tables = text.strip().split("\n\n")
    return [[[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()] for table in tables]


def test_rows_hold_accuracies_differences_bytes_and_speed(tool):
    outcomes = {
        ("net", "float32"): {"clean": [1, 1, 1, 1], "union": [1, 1, 0, 0]},
        ("net", "int8"): {"clean": [1, 1, 1, 0], "union": [1, 0, 0, 0]},
    }
    sizes, speeds = {("net", "float32"): 4096, ("net", "int8"): 1100}, {("net", "float32"): 1.04, ("net", "int8"): 3.26}
    text = tool.table(["net"], ["float32", "int8"], outcomes, sizes, speeds)
    (header, _, line), (second, _, other) = _cells(text)
    assert header[1:] == ["clean, float32", "clean, int8", "union, float32", "union, int8", "union, int8 minus float32"]
    assert line[:5] == ["net", "100.0", "75.0", "50.0", "25.0"]
    assert line[5].startswith("-25.0 [")
    assert second[1:] == ["KiB, float32", "KiB, int8", "times as fast, float32", "times as fast, int8"]
    assert other == ["net", "4", "1", "1.0", "3.3"]
    text = tool.table(["net"], ["float32", "float16", "int8"], outcomes, sizes, speeds)
    (_, _, line), (_, _, other) = _cells(text)
    assert line[1:7] == ["100.0", "-", "75.0", "50.0", "-", "25.0"] and line[7] == "-" and other[2] == other[5] == "-"
    assert len({len(row) for row in text.split("\n\n")[0].splitlines()}) == 1  # aligned


def test_an_export_without_a_report_is_named(tool, tmp_path):
    for name in ("net", "net-int8"):
        (tmp_path / name).mkdir()
    with pytest.raises(InputError, match=r"net-int8 has no report of gin/eval/litert.gin"):
        tool.run(tool.parser().parse_args([f"--exports={tmp_path}", "--names=net", "--kinds=int8"]))
    with pytest.raises(InputError, match=r"there is no export .*net-float32"):
        tool.run(tool.parser().parse_args([f"--exports={tmp_path}", "--names=net"]))


@pytest.mark.rest
def test_the_table_of_two_files_and_their_reports(tool, tmp_path, capsys):
    train, _, images, labels = flawed_models.digits()
    np.savez(tmp_path / "data.npz", images=images[:20], labels=labels[:20])
    module = tf.Module()
    module.run = tf.function(
        lambda images: {"logits": flawed_models.sound(images)},
        input_signature=[tf.TensorSpec([None, 8, 8, 1], name="images")],
    )
    tf.saved_model.save(module, str(tmp_path / "net" / "1"), signatures={"serving_default": module.run})
    rehearsal.remember(tmp_path / "net" / "1")
    for kind in ("float32", "int8"):
        version = tmp_path / f"net-{kind}" / "1"
        version.mkdir(parents=True)
        (version / "model.tflite").write_bytes(
            litert_files.converted({"logits": flawed_models.sound}, train[:100], kind)
        )
        flags = [f"--model={version}", f"--data={tmp_path / 'data.npz'}", f"--output={version / 'assets.extra'}"]
        flags += ["--gin_file=gin/eval/litert.gin", "--gin_param=EPSILON=0.1", "--gin_param=plateaus/Square.steps=20"]
        flags += ["--gin_param=EVALUATORS=[@CleanAccuracy(), @union/AttackAccuracy()]", "--quiet"]
        assert evaluate.main(flags) == 0
    capsys.readouterr()
    tool.run(tool.parser().parse_args([f"--exports={tmp_path}", "--names=net", "--kinds=float32,int8"]))
    (_, _, line), (_, _, other) = _cells(capsys.readouterr().out)
    assert all(0 <= float(cell) <= 100 for cell in line[1:5]) and float(line[1]) > float(line[3])
    assert float(other[1]) > 2 * float(other[2]) > 0 and all(float(cell) > 0 for cell in other[3:])
