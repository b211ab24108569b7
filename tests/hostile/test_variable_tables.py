"""The index of a SavedModel's variables is read with bounds, and as TensorFlow reads it."""

import random

import numpy as np
import pytest
import tensorflow as tf
from hostile import variable_tables as tables

from tfrobust.security import variable_index


def _model(folder, content: bytes):
    (folder / "variables").mkdir(parents=True)
    (folder / "variables" / "variables.index").write_bytes(content)
    (folder / "variables" / "variables.data-00000-of-00001").write_bytes(b"\0" * tables.DATA)
    return folder


@pytest.mark.parametrize("name", tables.CASES)
def test_what_ends_other_readers_is_found(tmp_path, name):
    content, part = tables.CASES[name]
    (finding,) = variable_index.findings(_model(tmp_path, content))
    assert part in finding.evidence and finding.evidence.isprintable() and len(finding.evidence) < 200


def test_a_whole_table_passes(tmp_path):
    assert variable_index.findings(_model(tmp_path, tables.VALID)) == []
    reader = tf.train.load_checkpoint(str(tmp_path / "variables" / "variables"))
    assert reader.get_variable_to_shape_map() == {
        "w": [4, 4]
    }  # the cases differ from what TensorFlow reads by one thing


def test_the_same_names_and_shapes_as_tensorflow_reads(valid):
    folder = valid / "export" / "variables"
    variables, stored = variable_index._read_index(folder / "variables.index")
    expected = tf.train.load_checkpoint(str(folder / "variables")).get_variable_to_shape_map()
    assert {variable.name: variable.shape for variable in variables} == expected
    assert stored == (folder / "variables.data-00000-of-00001").stat().st_size


def test_many_variables_of_all_kinds_pass(tmp_path):
    """Several blocks, names that begin alike, slices, numbers of no and of many dimensions, words, several files."""
    values = {f"layer_{number}/kernel": np.full((number % 7, 3), number, np.float16) for number in range(1500)}
    names = [*values, "words", "none", "truth"]
    tensors = [*values.values(), ["a", "b" * 300], np.zeros((0, 2), np.int64), True]
    (tmp_path / "variables").mkdir()
    parts = []
    for number, prefix in enumerate(("even", "odd")):
        parts.append(str(tmp_path / prefix))
        tf.raw_ops.SaveV2(
            prefix=parts[-1],
            tensor_names=names[number::2],
            shape_and_slices=[""] * len(names[number::2]),
            tensors=[tf.convert_to_tensor(tensor) for tensor in tensors[number::2]],
        )
    halves = [tf.ones((2, 5)), tf.zeros((2, 5))]
    parts.append(str(tmp_path / "slices"))
    tf.raw_ops.SaveV2(
        prefix=parts[-1], tensor_names=["part"] * 2, shape_and_slices=["4 5 0,2:-", "4 5 2,2:-"], tensors=halves
    )
    tf.raw_ops.MergeV2Checkpoints(
        checkpoint_prefixes=parts, destination_prefix=str(tmp_path / "variables" / "variables"), delete_old_dirs=False
    )
    assert len(list((tmp_path / "variables").glob("variables.data-*"))) == 3
    assert variable_index.findings(tmp_path) == []
    variables, _ = variable_index._read_index(tmp_path / "variables" / "variables.index")
    expected = tf.train.load_checkpoint(str(tmp_path / "variables" / "variables")).get_variable_to_shape_map()
    assert {variable.name: variable.shape for variable in variables if variable.name in expected} == expected


def test_spoiled_bytes_never_raise(tmp_path, valid):
    folder = _model(tmp_path, b"")
    index = folder / "variables" / "variables.index"
    content = (valid / "export" / "variables" / "variables.index").read_bytes()
    chance = random.Random(0)
    for _ in range(300):
        spoiled = bytearray(content)
        for _ in range(chance.randint(1, 4)):
            spoiled[chance.randrange(len(spoiled))] = chance.randrange(256)
        index.write_bytes(bytes(spoiled))
        assert bytes(spoiled) == content or len(variable_index.findings(folder)) == 1
