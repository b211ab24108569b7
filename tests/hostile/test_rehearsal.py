"""TensorFlow loads a model of others in a process of its own first; a crash or a lack of memory there is one line."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import stored
import tensorflow as tf
from hostile import programs
from hostile.small import write_litert

import tfrobust
from tfrobust.errors import InputError
from tfrobust.evaluation.engine import loading
from tfrobust.security import rehearsal, rehearsal_process, saved_models
from tfrobust.serving.export import verify


class _Called(Exception):
    """The rehearsal was begun."""


@pytest.fixture
def another(export_copy):
    """A model that this process has not written as it is."""
    programs.changed(lambda graph: programs.new_node(graph.graph_def.node, "more", "NoOp"))(export_copy)
    return export_copy


# Name -> (a program in place of the one that loads the model, a part of the line).
ENDS = stored.cases(__file__, "ends", globals())


@pytest.mark.parametrize("name", ENDS)
def test_how_it_ends_is_one_line(another, tmp_path, monkeypatch, name):
    program, part = ENDS[name]
    (tmp_path / "program.py").write_text(program)
    monkeypatch.setattr(rehearsal_process, "__file__", str(tmp_path / "program.py"))
    monkeypatch.setattr(rehearsal, "SECONDS", 0.5 if name == "it does not end" else 200)
    monkeypatch.setattr(tf.saved_model, "load", None)
    with pytest.raises(InputError, match=part) as error:
        loading.load(str(another))
    assert str(error.value).isprintable() and len(str(error.value)) <= 300
    assert verify.verify(another).problems == (str(error.value),)


def test_memory_is_given_for_what_lies_on_the_disk(tmp_path):
    """A terabyte of nothing, or a thousand links to one file, would otherwise allow as much."""
    least = rehearsal.memory_limit(tmp_path)
    (tmp_path / "whole").write_bytes(b"x" * 2**20)
    for number in range(50):
        (tmp_path / f"link{number}").symlink_to("whole")
        os.link(tmp_path / "whole", tmp_path / f"name{number}")
    with open(tmp_path / "hole", "wb") as file:
        file.truncate(2**40)
    assert least + 2**20 < rehearsal.memory_limit(tmp_path) < least + 2**25


def test_all_but_what_was_written_here_is_rehearsed(valid, another, tmp_path, monkeypatch):
    def run(*_):
        raise _Called

    monkeypatch.setattr(rehearsal, "run", run)
    moved = shutil.copytree(valid / "export", tmp_path / "moved")
    for directory in (valid / "export", moved):
        assert "serving_default" in saved_models.load(directory).signatures
    with pytest.raises(_Called):
        saved_models.load(another)
    index = moved / "variables" / "variables.index"
    index.write_bytes(index.read_bytes()[:-1] + b"\0")
    with pytest.raises(_Called):
        rehearsal.rehearse(moved)


@pytest.mark.parametrize("suffix", [".keras", ".tflite"])
def test_a_link_to_a_file_without_a_suffix_is_rehearsed_by_its_own_name(
    valid, tmp_path, rehearsed_here, monkeypatch, suffix
):
    """The cache of huggingface_hub consists of such links."""
    if not (valid / "model.tflite").exists():
        write_litert(valid)
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshot").mkdir()
    shutil.copy(valid / f"model{suffix}", tmp_path / "blobs" / "0abc")
    link = tmp_path / "snapshot" / f"model{suffix}"
    link.symlink_to("../blobs/0abc")
    names, run = [], rehearsal.run
    monkeypatch.setattr(
        rehearsal, "run", lambda model, *more: names.append(os.path.basename(model)) or run(model, *more)
    )
    assert loading.load(str(link)).class_count == 3
    assert names == [f"model{suffix}"]


class _Recording(tf.Module):
    """Keeps the sizes of the batches it gets, and whether their gradients are computed."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __call__(self, batch):
        self.calls.append([len(batch), round(float(tf.reduce_max(batch)), 3)])

        @tf.custom_gradient
        def logits(inner):
            def backward(upstream):
                self.calls[-1].append("gradient")
                return tf.zeros_like(inner)

            return inner[:, 0, :3, 0], backward

        return logits(batch)


@pytest.mark.parametrize("more, gradients", [({"gradient_batch": 2}, (1, 2)), ({}, ())])
def test_the_function_is_called_as_the_command_will(tmp_path, more, gradients):
    """Once gray, then with real examples; the largest batch at last, and the gradient where one follows."""
    examples = np.linspace(0.6, 0.9, 5, dtype=np.float32).repeat(64).reshape(5, 8, 8, 1)
    np.save(tmp_path / "examples.npy", examples)
    recording = _Recording()
    use = {"batch_size": 40, "examples": str(tmp_path / "examples.npy"), **more}
    rehearsal_process._call(recording, [None, 8, 8, 1], "float32", use)
    expected = [(1, 0.5), (2, 0.6), (40, 0.9)]
    assert recording.calls == [[*call, *["gradient"] * (call[0] in gradients)] for call in expected]
    recording.calls.clear()
    rehearsal_process._call(recording, [4, None, None, 1], "float32", {"batch_size": 40})
    assert recording.calls[0][0] == 4 and len(recording.calls) == 1


def test_a_batch_that_takes_too_long_is_made_smaller(monkeypatch):
    batches, clock = [], iter(range(0, 1000, 1))
    monkeypatch.setattr(rehearsal_process.time, "monotonic", lambda: float(next(clock)))
    rehearsal_process._call(lambda x: batches.append(len(x)) or x, [None, 2], "float32", {"batch_size": 128})
    assert batches == [1, 2, 10]  # a second for two, five seconds at most


def test_a_whole_model_is_loaded_and_asked(valid, monkeypatch):
    asked = []
    monkeypatch.setattr(rehearsal_process, "_run", lambda function, batch, _: asked.append(len(function(batch))))
    assert rehearsal_process.rehearse(str(valid / "export")) == ["call", ""]
    assert asked == [3, 3]


def test_the_limits_hold():
    program = (
        "import runpy, sys\n"
        "sys.path.append(sys.argv[2])\n"
        "inner = runpy.run_path(sys.argv[1])\n"
        "inner['limit'](1)\n"
        "inner['memory'].limit(2**28)\n"
        "try:\n    bytearray(2**29)\n"
        "except MemoryError:\n    print('no memory', flush=True)\n"
        "while True:\n    pass\n"
    )
    root = pathlib.Path(tfrobust.__file__).parents[1]
    command = [sys.executable, "-P", "-c", program, rehearsal_process.__file__, str(root)]
    done = subprocess.run(command, capture_output=True, timeout=300)
    assert (done.stdout, done.returncode) == (b"no memory\n", -signal.SIGXCPU)


class _Large(tf.Module):
    """Its answer takes 2^40 numbers, of which the file says nothing."""

    @tf.function(input_signature=[tf.TensorSpec([None, 8, 8, 1], name="images")])
    def __call__(self, images):
        side = tf.cast(tf.shape(images)[1], tf.int64) * 2**17
        return {"logits": images[:, 0, :3, 0] + tf.reduce_max(tf.fill([side, side], 1.0))}


class _Endless(tf.Module):
    """Its answer never comes; the loop counts, because one of floats keeps every value for its gradient."""

    @tf.function(input_signature=[tf.TensorSpec([None, 8, 8, 1], name="images")])
    def __call__(self, images):
        first = tf.cast(tf.reduce_max(images), tf.int32) + 1
        (count,) = tf.while_loop(lambda count: count > 0, lambda count: (count % 7 + 1,), (first,))
        return {"logits": images[:, 0, :3, 0] + tf.cast(count, tf.float32)}


@pytest.mark.rest
@pytest.mark.parametrize(
    "kind, seconds, part", [(_Large, rehearsal.SECONDS, "more memory than it may"), (_Endless, 30, "within 30 s")]
)
def test_tensorflow_itself(tmp_path, monkeypatch, kind, seconds, part):
    monkeypatch.setattr(rehearsal, "SECONDS", seconds)
    module = kind()
    tf.saved_model.save(module, str(tmp_path / "model"), signatures={"serving_default": module.__call__})
    with pytest.raises(InputError, match=part):
        loading.load(str(tmp_path / "model"))
