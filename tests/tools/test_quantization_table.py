"""The table of what quantization costs: its arithmetic, and its way through reports and files."""

import numpy as np
import pytest
import tensorflow as tf

from oracles import flawed_models, litert_files
from tfrobust.commands import evaluate
from tfrobust.security import rehearsal


def _cells(text):
    tables = text.strip().split("\n\n")
    return [[[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()] for table in tables]


@pytest.mark.rest
def test_the_table_of_two_files_and_their_reports(tmp_path, capsys):
    import quantization_table as tool  # it limits the threads of a TensorFlow that is imported later

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
