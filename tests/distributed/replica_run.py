"""Trains every row of the method battery for two steps on R logical CPUs and saves what came out.

A process of its own for each replica count: `replica_run.py REPLICAS OUTPUT.npz`. A second
MirroredStrategy in one process breaks the collectives of the first. `case/name` in the output:

    ROW/OPTIMIZER/ADVERSARIES[/EXTRA]: gradient/NN (of the first step), weight/NN (before, after), log/NAME
    draws/NAME: one random draw for the global batch, row by row
    views/ROW/NAME: the views of a first step
    loop: a `training.loop.Loop`, ended after its first epoch and resumed where there are several replicas
    refused/ROW: the sentence that a row is refused with
"""

import dataclasses
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import keras
import numpy as np
import tensorflow as tf

from conformance import methods as battery
from tfrobust.attacks.adversary import Adversary
from tfrobust.attacks.gradient import PGD
from tfrobust.attacks.threat import ThreatModel
from tfrobust.augment.standard import PadCrop, RandomFlip, RandomShift
from tfrobust.data import pipeline
from tfrobust.data.spec import ArrayExamples
from tfrobust.losses.gradient_penalty import Tikhonov
from tfrobust.models.cnn import CNN
from tfrobust.models.projection import ProjectionHead
from tfrobust.ops import distribution, norms, randomness
from tfrobust.training.loop import Loop

GLOBAL_BATCH = 8
STEPS = 2
RATE = 0.05

OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(RATE, momentum=0.9),
    "adam": lambda: keras.optimizers.Adam(0.01, epsilon=1e-3),
}
# What runs, by the number of replicas: (optimizer/adversaries, every row or the first of each method). Tracing takes
# nearly all of the time, and grows with the replicas.
CASES = {2: (("sgd/given", "every"), ("adam/attack", "first")), 4: (("sgd/attack", "first"),)}
# Of one row each: gradients that are really clipped; examples that count for more, less, and nothing; a penalty by
# the difference of the batch loss, of a step so long that rounding does not show.
EXTRAS = {
    "clipped": {"clip_norm": 0.05},
    "weighted": {},
    "difference": {"penalty": Tikhonov(form="batch", mode="finite_difference", step=1.0)},
}
EXTRA_ROW = "ascl"
# Batch norm in the projection as well; in the second, in the prediction and in a momentum network, too.
NORMALIZED_ROWS = ("simclr_adaptive_fnc", "byol")
LOOP_ROW = "ascl_leaked"


@dataclasses.dataclass(frozen=True, kw_only=True)
class GivenAdversary(Adversary):
    """No gradient decides: the image and a wave that depends on its row in the global batch alone."""

    def perturb(self, predict, images, labels, key):
        rows = tf.cast(distribution.global_rows(tf.shape(images)[0]), tf.float32)
        wave = tf.sin(rows[:, None] + tf.range(images.shape[1], dtype=tf.float32)[None])
        return tf.clip_by_value(images + 0.05 * wave[:, :, None, None], 0.0, 1.0)


def first_rows() -> list[str]:
    """The first row of each method."""
    first = {}
    for row in battery.ROWS:
        first.setdefault(type(battery.build(row, compiled=False)), row)
    return list(first.values())


def cases_of(replicas: int) -> list[str]:
    """ROW/OPTIMIZER/ADVERSARIES of all that runs; one replica runs what any other number does."""
    if replicas == 1:
        return [*cases_of(2), *cases_of(4)]
    rows = {"every": list(battery.ROWS), "first": first_rows()}
    return [f"{row}/{case}" for case, which in CASES[replicas] for row in rows[which]]


def smooth_encoder(activation="softplus", **keywords):
    """No kinks and synchronised batch norm: what differs between replica counts is then rounding alone."""
    return CNN(stages=((4,), (6,)), dense=(5,), activation=activation, pooling="average", synchronized=True, **keywords)


def centred_encoder(**keywords):
    """Embeddings around 0: Keras's E[x^2] - E[x]^2 of far-off ones loses digits, and batch norm enlarges the loss."""
    return smooth_encoder("tanh", **keywords)


def normalized_head() -> ProjectionHead:
    """Batch norm and no ReLU behind it."""
    return ProjectionHead((), dim=4, normalization="all")


def smooth_attack() -> PGD:
    """Two L2 steps: a sign would turn rounding into jumps."""
    return PGD(ThreatModel(norm="l2", epsilon=0.5), steps=2)


def build(strategy, row: str, optimizer: str, adversaries: str, *, mode: bool = False, normalized=False, **keywords):
    """A row's method with smooth parts. Unless `mode`, its adversaries are made in inference mode.

    Where `normalized`, its projection has batch norm.
    """
    kind = GivenAdversary if adversaries == "given" else Adversary

    def adversary(**own):
        return kind(attack=smooth_attack(), **(own if mode else {**own, "mode": "inference"}))

    kept = battery.encoder, battery.adversary, battery._head
    battery.encoder, battery.adversary = smooth_encoder, adversary
    if normalized:
        battery.encoder, battery._head = centred_encoder, normalized_head
    try:
        with strategy.scope():
            return battery.build(row, optimizer=OPTIMIZERS[optimizer](), **keywords)
    finally:
        battery.encoder, battery.adversary, battery._head = kept


def train_function(strategy, method):
    @tf.function(autograph=False)
    def step(*batch):
        strategy.run(method.train_step, args=(batch,))
        return method.get_metrics_result()

    return step


def distributed(strategy, *arrays):
    """Global batches, cut into equal shards of adjacent rows."""
    dataset = tf.data.Dataset.from_tensor_slices(arrays).batch(GLOBAL_BATCH, drop_remainder=True)
    return strategy.experimental_distribute_dataset(dataset)


def weights_of(method, when: str) -> dict:
    """Without the clock, and without the sums that metrics keep."""
    weights = [weight for weight in method.weights if weight.dtype == "float32"]
    return {f"weight/{when}/{place:02}": weight.numpy() for place, weight in enumerate(weights)}


def run_row(strategy, row: str, case: str) -> dict:
    """Weights before and after, the gradients of the first step, and the logs."""
    optimizer, adversaries, *extra = case.split("/")
    keywords = {**EXTRAS, "normalized": {"normalized": True}}[extra[0]] if extra else {}
    method = build(strategy, row, optimizer, adversaries, **keywords)
    arrays = battery.data(GLOBAL_BATCH * STEPS, row)
    if extra == ["weighted"]:
        arrays = (*arrays, np.tile(np.array([0, 2, 1, 0.5, 3, 0, 0, 1], np.float32), STEPS))
    found = weights_of(method, "before")
    step = train_function(strategy, method)
    for number, batch in enumerate(distributed(strategy, *arrays)):
        logs = step(*batch)
        if number == 0 and optimizer == "sgd":  # the first velocity is -rate x gradient, exactly
            moments = method.optimizer.momentums
            found |= {f"gradient/{place:02}": m.numpy() / -RATE for place, m in enumerate(moments)}
    return found | weights_of(method, "after") | {f"log/{name}": np.float32(value) for name, value in logs.items()}


def refusal(strategy, row: str) -> str:
    """The error of a row as the battery has it, or "" if it trains."""
    method = build(strategy, row, "sgd", "attack", mode=True)
    try:
        train_function(strategy, method)(*next(iter(distributed(strategy, *battery.data(GLOBAL_BATCH)))))
    except ValueError as error:
        return str(error)
    return ""


def draws(strategy) -> dict:
    """What is drawn for equal images: whatever differs between rows comes from the draws."""
    local = GLOBAL_BATCH // strategy.num_replicas_in_sync
    ramp = tf.reshape(tf.linspace(0.0, 1.0, 64), [1, 8, 8, 1])

    def made():
        images, key = tf.tile(ramp, [local, 1, 1, 1]), randomness.make_key(7, "draws")
        parts = {"shift": RandomShift(fraction=0.3), "flip": RandomFlip(), "crop": PadCrop(padding=2)}
        views = {name: part(images, key) for name, part in parts.items()}
        return views | {kind: norms.random_in_ball(key, images, kind, 0.5) for kind in norms.KINDS}

    found = tf.function(lambda: strategy.run(made), autograph=False)()
    return {name: np.concatenate(strategy.experimental_local_results(value)) for name, value in found.items()}


def views(strategy, row: str) -> dict:
    """The views of a row's first step, over the global batch."""
    method = build(strategy, row, "sgd", "given")

    @tf.function(autograph=False)
    def made(*data):
        def one(*data):
            batch = method.as_batch(data)
            return method.make_views(batch, method.context(batch))

        return strategy.run(one, args=data)

    found = made(*next(iter(distributed(strategy, *battery.data(GLOBAL_BATCH)))))
    return {name: np.concatenate(strategy.experimental_local_results(value)) for name, value in found.items()}


def run_loop(strategy) -> dict:
    """Two epochs of three steps, in one go on one replica and with a new start between them on several."""
    examples = ArrayExamples(*battery.data(3 * GLOBAL_BATCH + 2))
    with tempfile.TemporaryDirectory() as directory:
        for epochs in (2,) if strategy.num_replicas_in_sync == 1 else (1, 2):
            loop = Loop(
                method=build(strategy, LOOP_ROW, "sgd", "attack"),
                strategy=strategy,
                batches=lambda step: pipeline.training_batches(
                    examples, batch_size=GLOBAL_BATCH, seed=3, augmentation=RandomShift(), start_step=step
                ),
                steps_per_epoch=3,
                epochs=epochs,
                checkpoint_directory=directory,
                verbose=0,
            )
            history = loop.run()
    found = {f"log/{name}": np.array(values, np.float32) for name, values in history.items()}
    return found | weights_of(loop.method, "after") | {"step": loop.method.step.numpy()}


def main(replicas: int, output: str) -> None:
    tf.get_logger().setLevel("ERROR")  # many functions, each traced once
    # Each function runs twice: improving its graph first does not pay.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * replicas
    )
    strategy = tf.distribute.get_strategy()
    if replicas > 1:
        strategy = tf.distribute.MirroredStrategy([f"CPU:{place}" for place in range(replicas)])
    found = {}

    def add(case, values):
        found.update({f"{case}/{name}": value for name, value in values.items()})

    for case in cases_of(replicas):
        add(case, run_row(strategy, *case.split("/", 1)))
    add("draws", draws(strategy))
    if replicas < 4:
        for row in battery.ROWS:
            adversary = getattr(battery.build(row, compiled=False), "adversary", None) or Adversary()
            if adversary.mode != "inference":
                add("refused", {row: refusal(strategy, row)})
        for extra in EXTRAS:
            add(f"{EXTRA_ROW}/sgd/given/{extra}", run_row(strategy, EXTRA_ROW, f"sgd/given/{extra}"))
        for row in NORMALIZED_ROWS:
            add(f"{row}/sgd/given/normalized", run_row(strategy, row, "sgd/given/normalized"))
        for row in ("supervised_contrastive", "ascl_two_transforms"):
            add(f"views/{row}", views(strategy, row))
        add("loop", run_loop(strategy))
    np.savez(output, **found)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
