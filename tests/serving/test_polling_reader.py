"""Publication under a reader that polls, as TensorFlow Serving does, and loads every new version at once."""

import os
import pathlib
import shutil
import subprocess
import sys
import time

import pytest
import stored
import tensorflow as tf

from tfrobust.serving.export import publish

ROOT = pathlib.Path(publish.__file__).parents[2]

READER = stored.text(globals(), "reader")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two staged models, whose variables answer 0 and 1, large enough not to be written at one stroke."""
    folder = tmp_path_factory.mktemp("models")
    for value in (0, 1):
        module = tf.Module()
        module.weights = tf.Variable(tf.fill([100_000], float(value)))

        @tf.function(input_signature=[tf.TensorSpec((None,), tf.float32, name="x")])
        def multiply(x, module=module):
            return {"y": x * tf.reduce_mean(module.weights)}

        tf.saved_model.save(module, str(folder / str(value)), signatures=multiply)
        publish.write_sums(folder / str(value))
    return folder


def read_while(publications, base, write):
    """Return a reader's problem with each version that `write(version)` makes; the reader is another process."""
    base.mkdir(parents=True)
    command = [sys.executable, "-c", READER.format(root=str(ROOT)), str(base), str(publications)]
    reader = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert reader.stdout.readline() == "ready\n"
        problems = {}
        for version in range(1, publications + 1):
            write(version)
            # It has loaded this one before the next appears, so that it is always waiting for the next.
            number, _, problem = reader.stdout.readline().rstrip("\n").partition(" ")
            problems[int(number)] = problem
        return problems
    finally:
        reader.kill()
        reader.wait()


def test_200_publications_and_no_torn_read_and_three_plain_copies_that_are_seen_torn(models, tmp_path):
    """After the publications, versions copied under their own names, as `cp -r` does: they would not pass unseen."""
    base = tmp_path / "exported" / "model"

    def write(version):
        run = str(version % 2)
        if version > 200:
            (base / str(version)).mkdir()
            time.sleep(0.05)  # as a slow disk does
            shutil.copytree(models / run, base / str(version), dirs_exist_ok=True)
            return
        assert publish.claim(base, "workdir", run=run, version=version) == version
        publish.publish(models / run, base, version, "workdir", run=run)

    problems = read_while(203, base, write)
    torn = [version for version, problem in problems.items() if problem]
    assert sorted(problems) == list(range(1, 204)) and torn == [201, 202, 203], problems
    assert sorted(os.listdir(base), key=int) == [str(version) for version in range(1, 204)]
