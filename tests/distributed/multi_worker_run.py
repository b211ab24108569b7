"""Record what one worker of a cluster computes, and offer the test's classes to the command's configuration."""

import json
import os
import pathlib
import time

import keras

BATCH, STEPS, EXAMPLES = 6, 9, 20  # three epochs of three batches


class Halt(keras.callbacks.Callback):
    """Halts a worker after a step that the environment names, until the file it makes is taken away.

    `HALT` is "<steps of this process>:<file>". It is no argument, so that the training configuration stays the same.
    """

    def __init__(self):
        super().__init__()
        steps, _, self._file = os.environ.get("HALT", "0:").partition(":")
        self._steps_left = int(steps)

    def on_train_batch_end(self, batch, logs=None):
        self._steps_left -= 1
        if self._steps_left == 0:
            pathlib.Path(self._file).write_text("halted")
            while os.path.exists(self._file):
                time.sleep(0.05)


def batches(start: int, **share):
    """Batches of 6 of 20 examples."""
    import numpy as np

    from tfrobust.data import pipeline
    from tfrobust.data.spec import ArrayExamples

    images = np.arange(EXAMPLES, dtype=np.float32).reshape(-1, 1, 1, 1) / EXAMPLES
    examples = ArrayExamples(images, np.arange(EXAMPLES, dtype=np.int32))
    return pipeline.training_batches(examples, batch_size=BATCH, seed=1, start_step=start, **share)


def main(folder: str) -> None:
    """Join the cluster of TF_CONFIG, look at the input, disagree about the step, part; write `FOLDER/<worker>.json`."""
    from tfrobust.errors import InputError
    from tfrobust.training import cluster, strategy
    from tfrobust.training.loop import Loop

    scope = strategy.make_strategy("multi_worker")
    worker = cluster.this_worker(scope)
    agreement = cluster.Agreement(scope, worker)
    loop = Loop(None, scope, batches, steps_per_epoch=3, epochs=3, checkpoint_directory="")
    observed = {"count": worker.count, "index": []}
    for start, steps in ((0, STEPS), (STEPS - 2, 2)):  # from the beginning, and resumed
        for _, batch in zip(range(steps), loop._distributed_batches(start), strict=False):
            parts = scope.experimental_local_results(batch.index)
            observed["index"].append([part.numpy().tolist() for part in parts])
    observed["any"] = agreement.any(worker.chief, not worker.chief, False, True)
    agreement.check_step(7)
    try:
        agreement.check_step(7 + worker.index)
    except InputError as error:
        observed["refused"] = str(error)
    pathlib.Path(folder, f"{worker.index}.json").write_text(json.dumps(observed))
    agreement.final_barrier()
    os._exit(0)
