"""Everything `tfrobust.keras` offers, walked from its own lists, and how one of each is made.

`OFFERED` has every public name. A class without a row in `ROWS` is made from the defaults of its kind (`instance`), so
that a new one is tested by being offered; a row has small sizes, and what is not the default: that a round trip can
lose.
"""

import inspect
import types

import keras
import numpy as np
import stored
import tensorflow as tf

from tfrobust import keras as robust
from tfrobust.attacks.shared.attack import Attack  # noqa: F401

SHAPE, SIZE, CLASSES, WORDS = (8, 8, 1), 64, 3, 20
attacks, augment, layers, losses = robust.attacks, robust.augment, robust.layers, robust.losses
methods, metrics, models = robust.methods, robust.metrics, robust.models

# Methods of clips alone, and the frames that they get.
OF_CLIPS, FRAMES = ("CVRL", "TCLR"), 16
THREAT = attacks.ThreatModel(norm="l2", epsilon=0.1)
SEVERAL = (THREAT, attacks.ThreatModel(norm="l1", epsilon=0.5))
ADVERSARY = methods.Adversary(attack=attacks.PGD(THREAT, steps=1), mode="batch")
INSTANCES = methods.InstanceAdversary(attack=attacks.PGD(THREAT, steps=1), negatives="moving", group=3)


SHIFTED = (augment.RandomShift(fraction=0.2), augment.PadCrop(padding=1))


def narrow():
    return layers.ProjectionHead((4,), dim=3, normalization="hidden", output_bias=False)


NARROW = narrow()


def small_cnn(**keywords):
    return models.CNN(((4,), (4,)), dense=(5,), **keywords)


def method(cls, **keywords):
    keywords = {"seed": 3, "term_weights": {"ce": 0.5}, **keywords}
    return lambda: cls(small_cnn(), models.LinearHead(CLASSES), **keywords)


@keras.saving.register_keras_serializable(package="tests")
def first_values(images):
    """Logits of a helper: the first values of each image."""
    return tf.reshape(images, [tf.shape(images)[0], -1])[:, :CLASSES]


# What is not the default is what a round trip can lose.
PARTS = stored.table(globals(), "facade_parts")
LOSSES = stored.table(globals(), "facade_losses")
METRICS = stored.table(globals(), "facade_metrics")
OPTIMIZERS = {
    "LARS": lambda: robust.optimizers.LARS(0.1, nesterov=True, weight_decay=0.1, exclude=("gamma",), denominator="sum"),
    "LAMB": lambda: robust.optimizers.LAMB(0.1, beta_2=0.9, weight_decay=0.1, exclude=("gamma",)),
    "ScheduledAdamW": lambda: robust.optimizers.ScheduledAdamW(
        0.1, beta_2=0.9, weight_decay=keras.optimizers.schedules.CosineDecay(0.1, 9, alpha=2.0), exclude=("gamma",)
    ),
}
IMAGE_LAYERS = stored.table(globals(), "facade_image_layers")
VECTOR_LAYERS = stored.table(globals(), "facade_vector_layers")
METHODS = stored.table(globals(), "facade_methods")
CALLBACKS = {
    "RobustAccuracy": lambda folder: robust.callbacks.RobustAccuracy(*data(), attack=attacks.FGSM(THREAT)),
    "BestWeights": lambda folder: robust.callbacks.BestWeights(folder, monitor="val_accuracy"),
    "AveragedWeights": lambda folder: robust.callbacks.AveragedWeights(decay=0.5),
    "CollapseWarning": lambda folder: robust.callbacks.CollapseWarning(threshold=0.1),
    "OverfittingWarning": lambda folder: robust.callbacks.OverfittingWarning(
        *data(), attack=attacks.PGD(THREAT, steps=2)
    ),
    "NegativesWarning": lambda folder: robust.callbacks.NegativesWarning(),
}
# Layers whose input is no image and no vector.
TOKEN_LAYERS = stored.table(globals(), "facade_token_layers")
PAIR_LAYERS = stored.table(globals(), "facade_pair_layers")
CLIP_LAYERS = stored.table(globals(), "facade_clip_layers")
LAYERS = IMAGE_LAYERS | VECTOR_LAYERS | TOKEN_LAYERS | PAIR_LAYERS | CLIP_LAYERS
ROWS = PARTS | LOSSES | METRICS | OPTIMIZERS | LAYERS | METHODS
ABSTRACT = ("Augmentation", "Encoder", "Method")

# ---------------------------------------------------------------------------------------------- what is offered


def _offered() -> dict:
    items = {}
    for name in robust.__all__:
        item = getattr(robust, name)
        inner = {f"{name}.{member}": getattr(item, member) for member in getattr(item, "__all__", ())}
        items |= inner if isinstance(item, types.ModuleType) else {name: item}
    for name, item in vars(attacks.objectives).items():
        # Those that end so are of logits; the factories of objectives are what users take.
        if inspect.isfunction(item) and not name.startswith("_") and not name.endswith("_of"):
            items[f"attacks.objectives.{name}"] = item
    return {path: item for path, item in items.items() if not isinstance(item, types.ModuleType)}


# Path below `tfrobust.keras` -> what stands there; the members of a module in place of the module.
OFFERED = _offered()
# Modules of parts of a gin file, which are no Keras objects: their batteries are in tests/data and tests/evaluation.
IN_GIN = ("data.", "evaluators.")
KINDS = stored.table(globals(), "facade_kinds")


def kind_of(item) -> str:
    """The first of `KINDS` that it is; "function"; or "part", which is an argument of a method or an attack."""
    if not inspect.isclass(item):
        return "function"
    return next((kind for kind, base in KINDS.items() if issubclass(item, base)), "part")


def file_name(cls: type) -> str:
    """Return the name of a class in `.keras` files and in the tables here: `layers.AugMix` is AugMixLayer."""
    return keras.saving.get_registered_name(cls).removeprefix("tfrobust>")


# Every class once, by its name in files.
CLASSES_OFFERED = {
    file_name(item): item for path, item in OFFERED.items() if inspect.isclass(item) and not path.startswith(IN_GIN)
}


def names(kind: str) -> list[str]:
    """Return the names of all concrete classes of a kind."""
    return [name for name, cls in CLASSES_OFFERED.items() if kind_of(cls) == kind and name not in ABSTRACT]


def instance(name: str, **keywords):
    """One of a class: as its row says, else from the defaults of its kind."""
    if name in ROWS:
        return ROWS[name](**keywords)
    cls = CLASSES_OFFERED[name]
    arguments = {"method": (small_cnn(), models.LinearHead(CLASSES)), "attack": (THREAT,), "optimizer": (0.1,)}
    return cls(*arguments.get(kind_of(cls), ()), **keywords)


# -------------------------------------------------------------------------------------------- models around them


def data(count: int = 12):
    """Images and labels that a small network can tell apart: each class lights its own rows."""
    images = np.random.default_rng(1).uniform(0.0, 0.4, (count, *SHAPE)).astype("float32")
    labels = np.arange(count) % CLASSES
    for row, label in enumerate(labels):
        images[row, 2 * label : 2 * label + 2] += 0.5
    return images, labels


def data_of(name: str):
    """Return `data()`; for methods of clips alone, clips in which these images move down."""
    images, labels = data()
    if name in OF_CLIPS:
        images = np.stack([np.roll(images, frame, axis=1) for frame in range(FRAMES)], axis=1)
    return images, labels


def inputs_of(name: str) -> list[np.ndarray]:
    """Return the inputs of a model around a layer: images; for some layers tokens, clips, or a pair."""
    images, _ = data()
    if name in CLIP_LAYERS:
        return [np.stack([images, images[:, ::-1]], axis=1)]
    if name in TOKEN_LAYERS:
        return [np.random.default_rng(3).integers(1, WORDS, (len(images), 6)).astype("int32")]
    return [images, images] if name in PAIR_LAYERS else [images]


def takes_images(name: str) -> bool:
    """Return True if a layer belongs at the input of a model; the others take features."""
    return name not in VECTOR_LAYERS and (name in LAYERS or issubclass(CLASSES_OFFERED[name], models.Encoder))


def through(layer, name: str, inputs: list, training=None):
    """Apply a layer to the input, or to the flattened image, and return one tensor [b, d]."""
    if not takes_images(name):
        return layer(keras.ops.reshape(inputs[0], (-1, SIZE)))
    outputs = layer(*inputs, training=training)
    first = outputs[0] if isinstance(outputs, tuple) else outputs
    return keras.ops.reshape(first, (-1, int(np.prod(first.shape[1:]))))


def functional(name: str, **keywords) -> keras.Model:
    """A functional classifier with a layer inside."""
    inputs = [keras.Input(example.shape[1:], dtype=example.dtype.name) for example in inputs_of(name)]
    hidden = through(instance(name, **keywords), name, inputs)
    return keras.Model(inputs[0] if len(inputs) == 1 else inputs, keras.layers.Dense(CLASSES)(hidden))


@keras.saving.register_keras_serializable(package="tests")
class Subclassed(keras.Model):
    """A subclassed classifier with a layer inside."""

    def __init__(self, row: str, **keywords):
        super().__init__(**keywords)
        self.row, self.inner, self.dense = row, instance(row), keras.layers.Dense(CLASSES)

    def call(self, inputs, training=None):
        inputs = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        return self.dense(through(self.inner, self.row, inputs, training))

    def get_config(self):
        return {**super().get_config(), "row": self.row}


def plain(kind: str = "functional", activation=None) -> keras.Model:
    """An ordinary Keras classifier with nothing of ours in it."""
    chain = [keras.layers.Flatten(), keras.layers.Dense(CLASSES, activation=activation)]
    if kind == "functional":
        return keras.Sequential([keras.Input(SHAPE), *chain])
    return PlainSubclass(activation)


@keras.saving.register_keras_serializable(package="tests")
class PlainSubclass(keras.Model):
    """The same, subclassed."""

    def __init__(self, activation=None, **keywords):
        super().__init__(**keywords)
        self.activation = activation
        self.flatten, self.dense = keras.layers.Flatten(), keras.layers.Dense(CLASSES, activation=activation)

    def call(self, pictures):
        return self.dense(self.flatten(pictures))

    def get_config(self):
        return {**super().get_config(), "activation": self.activation}


KINDS_OF_MODELS = ("functional", "subclassed")


def compiled(model, loss=None, optimizer=None, **keywords):
    """Compiled as anybody would."""
    loss = loss or keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer or keras.optimizers.SGD(0.1), loss, **keywords)
    return model


def stream(inputs, labels, batch: int = 5) -> tf.data.Dataset:
    """Batches of unlike sizes, as a data set of any length has them."""
    inputs = inputs if isinstance(inputs, (list, tuple)) else [inputs]
    return tf.data.Dataset.from_tensor_slices((tuple(inputs) if len(inputs) > 1 else inputs[0], labels)).batch(batch)


def call(model, inputs: list) -> np.ndarray:
    """Return a model's outputs in inference mode."""
    return np.asarray(model(inputs if len(inputs) > 1 else inputs[0], training=False), np.float32)


def copies(model, folder):
    """The model again: from a `.keras` file, and by `clone_model` with its weights."""
    model.save(folder / "model.keras")
    yield keras.saving.load_model(folder / "model.keras", safe_mode=True)
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    yield clone
