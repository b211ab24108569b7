"""Compute rows of the method battery, draws, views and the loop on one replica and on several.

The functions `update`, `refusals`, `rows_of_batches` and `loop` run in a process of their own, for a second
MirroredStrategy in one process breaks the collectives of the first. Each saves its arrays: `one/NAME` of a single
replica and `many/NAME`. The single replica runs operation by operation, which costs less than tracing. So do several,
unless the step is to be traced: then it is traced once and run twice.
"""

import dataclasses
import pathlib
import tempfile

import keras
import numpy as np
import tensorflow as tf

from conformance import backbones
from conformance import methods as battery
from tfrobust.augment.standard import PadCrop, RandomFlip, RandomShift
from tfrobust.data import pipeline, spec
from tfrobust.keras.attacks import PGD, ThreatModel
from tfrobust.keras.methods import Adversary, Supervised, Tikhonov
from tfrobust.keras.models import CNN, ProjectionHead
from tfrobust.ops import distribution, norms, randomness
from tfrobust.training.loop import Loop

GLOBAL_BATCH = 8
RATE = 0.05

OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(RATE, momentum=0.9),
    "adam": lambda: keras.optimizers.Adam(0.01, epsilon=1e-3),
}
# Gradients that are really clipped; examples that count for more, less, and nothing; a penalty by the difference of
# the batch loss, of a step so long that rounding does not show; batch norm in the projection as well.
EXTRAS = {
    "clipped": {"clip_norm": 0.05},
    "weighted": {},
    "difference": {"penalty": Tikhonov(form="batch", mode="finite_difference", step=1.0)},
    "normalized": {"normalized": True},
    "foreign": {"foreign": True},
}
WEIGHTS = np.array([0, 2, 1, 0.5, 3, 0, 0, 1], np.float32)
LOOP_ROW = "supervised_contrastive"


@dataclasses.dataclass(frozen=True, kw_only=True)
class GivenAdversary(Adversary):
    """No gradient decides: the image and a wave that depends on its row in the global batch alone."""

    def perturb(self, predict, images, labels, key, step=None):
        rows = tf.cast(distribution.global_rows(tf.shape(images)[0]), tf.float32)
        wave = tf.sin(rows[:, None] + tf.range(images.shape[1], dtype=tf.float32)[None])
        wave = tf.reshape(wave, [-1, images.shape[1], *[1] * (images.shape.rank - 2)])
        return tf.clip_by_value(images + 0.05 * wave, 0.0, 1.0)


def first_rows() -> list[str]:
    """The first row of each method."""
    first = {}
    for row in battery.ROWS:
        first.setdefault(type(battery.build(row, compiled=False)), row)
    return list(first.values())


def smooth_encoder(activation="softplus", **keywords):
    """No kinks and synchronised batch norm: what differs between replica counts is then rounding alone."""
    style = {"dense": (5,), "activation": activation, "pooling": "average", "synchronized": True}
    return CNN(stages=((4,), (6,)), **style | keywords)


def centred_encoder(**keywords):
    """Embeddings around 0: Keras's E[x^2] - E[x]^2 of far-off ones loses digits, and batch norm enlarges the loss."""
    return smooth_encoder("tanh", **keywords)


def normalized_head() -> ProjectionHead:
    """Batch norm and no ReLU behind it."""
    return ProjectionHead((), dim=4, normalization="all")


def smooth_attack() -> PGD:
    """Two L2 steps: a sign would turn rounding into jumps."""
    return PGD(ThreatModel(norm="l2", epsilon=0.5), steps=2)


def foreign_encoder(**keywords):
    """A functional model of Keras's own layers, its batch norm set to be synchronized, with two stages."""
    return backbones.functional(synchronized=True, stage_names="resolution", **keywords)


def build(
    strategy, row: str, optimizer: str, adversaries: str, *, mode=False, normalized=False, foreign=False, **keywords
):
    """A row's method with smooth parts. Unless `mode`, its adversaries are made in inference mode.

    Where `normalized`, its projection has batch norm. Where `foreign`, its encoder is a Backbone.
    """
    kind = GivenAdversary if adversaries == "given" else Adversary

    def adversary(**options):
        return kind(attack=smooth_attack(), **(options if mode else {**options, "mode": "inference"}))

    originals = battery.encoder, battery.adversary, battery._head
    battery.encoder, battery.adversary = foreign_encoder if foreign else smooth_encoder, adversary
    if normalized:
        battery.encoder, battery._head = centred_encoder, normalized_head
    try:
        with strategy.scope():
            return battery.build(row, optimizer=OPTIMIZERS[optimizer](), **keywords)
    finally:
        battery.encoder, battery.adversary, battery._head = originals


def distributed(strategy, *arrays):
    """Global batches, cut into equal shards of adjacent rows."""
    dataset = tf.data.Dataset.from_tensor_slices(arrays).batch(GLOBAL_BATCH, drop_remainder=True)
    return strategy.experimental_distribute_dataset(dataset)


def state_of(method, when: str) -> dict:
    """Every float, without the sums that metrics keep, and the clock."""
    weights = [weight for weight in method.weights if weight.dtype == "float32"]
    arrays = {f"weight/{when}/{number:02}": weight.numpy() for number, weight in enumerate(weights)}
    return arrays | {f"clock/{when}": method.step.numpy()}


def train(strategy, row: str, case: str, *, traced: bool, steps: int) -> dict:
    """Weights before and after some steps, the gradients of the first, and the last logs."""
    optimizer, adversaries, *extra = case.split("/")
    method = build(strategy, row, optimizer, adversaries, **(EXTRAS[extra[0]] if extra else {}))
    arrays = battery.data(GLOBAL_BATCH * steps, row)
    if extra == ["weighted"]:
        arrays = (*arrays, np.tile(WEIGHTS, steps))
    state = state_of(method, "before")

    def step(*batch):
        strategy.run(method.train_step, args=(batch,))
        return method.get_metrics_result()

    if traced:
        step = tf.function(step, autograph=False)
    for number, batch in enumerate(distributed(strategy, *arrays)):
        logs = step(*batch)
        if number == 0 and optimizer == "sgd":  # the first velocity is -rate x gradient, exactly
            moments = method.optimizer.momentums
            state |= {f"gradient/{position:02}": m.numpy() / -RATE for position, m in enumerate(moments)}
    return state | state_of(method, "after") | {f"log/{name}": np.float32(value) for name, value in logs.items()}


# ------------------------------------------------------------------------------------- what runs in a process


def update(output: str, replicas: int, case: str, traced: bool) -> None:
    """A case ROW/OPTIMIZER/ADVERSARIES[/EXTRA]; of an extra, also what one replica does without it, as `plain`."""
    single, several = strategies(replicas)
    row, _, rest = case.partition("/")
    how = {"steps": 2 if traced else 1}
    arrays = {
        "one": train(single, row, rest, traced=False, **how),
        "many": train(several, row, rest, traced=traced, **how),
    }
    if rest.count("/") == 2:
        arrays["plain"] = train(single, row, rest.rpartition("/")[0], traced=False, **how)
    save(output, **arrays)


def refusals(output: str, replicas: int) -> None:
    """ROW: the error of a row as the battery has it, or "" if it trains; of those with adversaries by batch."""

    def refusal(strategy, row):
        method = build(strategy, row, "sgd", "attack", mode=True)
        step = tf.function(lambda *batch: strategy.run(method.train_step, args=(batch,)), autograph=False)
        try:
            step.get_concrete_function(*next(iter(distributed(strategy, *battery.data(GLOBAL_BATCH)))))
        except ValueError as error:
            return str(error)
        return ""

    single, several = strategies(replicas)
    adversaries = {row: getattr(battery.build(row, compiled=False), "adversary", None) for row in battery.ROWS}
    adversaries.pop("free_adversarial_training")  # its attack is the training step, which gathers
    rows = [row for row, adversary in adversaries.items() if adversary and adversary.mode != "inference"]
    save(
        output,
        **{
            name: {row: refusal(strategy, row) for row in rows}
            for name, strategy in (("one", single), ("many", several))
        },
    )


def overflow(output: str, replicas: int) -> None:
    """Weights, loss scale and updates after a step in which the gradients of the last replica alone overflow."""

    def after(strategy) -> dict:
        with strategy.scope():
            keras.utils.set_random_seed(0)
            image = keras.Input((2, 2, 1))
            encoder = keras.Model(image, keras.layers.Rescaling(1000.0)(keras.layers.Flatten()(image)))
            method = Supervised(encoder, keras.layers.Dense(2, kernel_initializer="zeros"))
            method.build((None, 2, 2, 1))
            optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=2.0**125)
            method.compile(optimizer)
            optimizer.build(method.trainable_variables)
        images = np.zeros((GLOBAL_BATCH, 2, 2, 1), np.float32)
        images[GLOBAL_BATCH // 2 :] = 1.0
        batch = next(iter(distributed(strategy, images, np.array([0, 1, 1, 1] * 2, np.int32))))
        tf.function(lambda: strategy.run(method.train_step, args=(batch,)))()
        kernel, _ = method.trainable_variables
        facts = {"scale": optimizer.dynamic_scale, "updates": optimizer.inner_optimizer.iterations, "kernel": kernel}
        return {name: value.numpy() for name, value in facts.items()}

    single, several = strategies(replicas)
    save(output, one=after(single), many=after(several))


def fits(output: str, replicas: int, row: str, counts: list[int], kind: str) -> None:
    """One epoch of Keras's `fit` on so many examples, in batches of 8, and on one replica of those that divide.

    `COUNT/NAME`: the weights. kind: "arrays" or "dataset".
    """
    single, several = strategies(replicas)

    def fitted(strategy, count) -> dict:
        method = build(strategy, row, "sgd", "given")
        data = tuple(array[:count] for array in battery.data(4 * GLOBAL_BATCH, row))
        if kind == "dataset":
            method.fit(tf.data.Dataset.from_tensor_slices(data).batch(GLOBAL_BATCH), verbose=0)
        else:
            method.fit(*data, batch_size=GLOBAL_BATCH, shuffle=False, verbose=0)
        return state_of(method, "after")

    arrays = {"one": {}, "many": {}}
    for count in counts:
        divided = count - count % GLOBAL_BATCH % replicas
        for name, strategy, size in (("one", single, divided), ("many", several, count)):
            arrays[name] |= {f"{count}/{key}": value for key, value in fitted(strategy, size).items()}
    save(output, **arrays)


def rows_of_batches(output: str, replicas: int, rows: list[str]) -> None:
    """Return the draws for equal images, `draws/NAME`, and the views of a row's first step, `ROW/NAME`."""

    def draws_and_views(strategy) -> dict:
        def draw():
            ramp = tf.reshape(tf.linspace(0.0, 1.0, 64), [1, 8, 8, 1])
            images = tf.tile(ramp, [GLOBAL_BATCH // strategy.num_replicas_in_sync, 1, 1, 1])
            key = randomness.make_key(7, "draws")
            parts = {"shift": RandomShift(fraction=0.3), "flip": RandomFlip(), "crop": PadCrop(padding=2)}
            drawn = {name: part(images, key) for name, part in parts.items()}
            return drawn | {kind: norms.random_in_ball(key, images, kind, 0.5) for kind in norms.KINDS}

        def view(method):
            def views(*data):
                batch = method.as_batch(data)
                return method.make_views(batch, method.context(batch))

            return strategy.run(views, args=next(iter(distributed(strategy, *battery.data(GLOBAL_BATCH)))))

        results = {"draws": strategy.run(draw)} | {row: view(build(strategy, row, "sgd", "given")) for row in rows}
        return {
            f"{kind}/{name}": np.concatenate(strategy.experimental_local_results(value))
            for kind, values in results.items()
            for name, value in values.items()
        }

    single, several = strategies(replicas)
    save(output, one=draws_and_views(single), many=draws_and_views(several))


def loop(output: str, replicas: int) -> None:
    """Two epochs of three steps, in one go on one replica and with a new start between them on several."""
    single, several = strategies(replicas)
    examples = spec.ArrayExamples(*battery.data(3 * GLOBAL_BATCH + 2))

    def ran(strategy, ends) -> dict:
        with tempfile.TemporaryDirectory() as directory:
            for epochs in ends:
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
        return {f"log/{name}": np.array(v, np.float32) for name, v in history.items()} | state_of(loop.method, "after")

    save(output, one=ran(single, (2,)), many=ran(several, (1, 2)))


def strategies(replicas: int) -> tuple:
    """One replica, and several logical CPUs; before anything else of TensorFlow."""
    tf.get_logger().setLevel("ERROR")  # many functions, each traced once
    # Each function runs once or twice: improving its graph first does not pay.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * replicas
    )
    mirrored = tf.distribute.MirroredStrategy([f"CPU:{number}" for number in range(replicas)])
    return tf.distribute.get_strategy(), mirrored


def save(output: str, **parts: dict) -> None:
    pathlib.Path(output).parent.mkdir(exist_ok=True)
    np.savez(output, **{f"{part}/{name}": value for part, values in parts.items() for name, value in values.items()})
