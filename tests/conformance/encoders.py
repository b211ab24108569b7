"""The battery that every encoder passes: one row per encoder, one function per property.

A new encoder adds a row to `ENCODERS`; tests/models/test_conformance.py runs every property on every row.
"""

import dataclasses
import functools
import warnings
from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf

from conformance import backbones
from tfrobust.models import cnn, lenet, text_transformer, vit
from tfrobust.models.backbone import Backbone
from tfrobust.models.resnets.preact_resnet import PreActResNet18
from tfrobust.models.resnets.r2plus1d import R3D18, R2Plus1D18
from tfrobust.models.resnets.resnet import ResNet
from tfrobust.models.resnets.resnet18 import ResNet18
from tfrobust.models.resnets.resnet50 import ResNet50
from tfrobust.models.resnets.wide_resnet import WideResNet


@dataclasses.dataclass(frozen=True)
class Row:
    """make(**encoder arguments) -> encoder; their numbers of parameters are those of tests/models/test_sizes.py.

    `l2` is the weight of the sum of squared kernels. `smallest`: the least image side that is accepted, 0 if all are
    resized. An encoder of text has no stages (None) and an `image_shape` (length,); what it refuses has tests of its
    own.
    """

    name: str
    make: Callable
    image_shape: tuple[int, ...]
    dim: int
    stage_count: int | None
    normalizes: bool
    l2: float
    smallest: int

    @property
    def kind(self) -> type:
        return getattr(self.make, "func", self.make)

    @property
    def is_text(self) -> bool:
        return len(self.image_shape) == 1

    @property
    def dtype(self) -> str:
        return "int32" if self.is_text else "float32"


WORDS = 20


def backbone(width: int = 5, kernel_regularization: float = 0.01, **arguments) -> Backbone:
    """A small functional model, as a user would pass it."""
    images = keras.Input((None, None, 2))
    penalty = keras.regularizers.L2(kernel_regularization)
    if "pixel_mean" not in arguments:
        arguments["pixel_range"] = (0, 1)
    options = {"padding": "same", "activation": "tanh", "kernel_regularizer": penalty}
    hidden = keras.layers.Conv2D(4, 3, strides=2, **options)(images)
    return Backbone(keras.Model(images, keras.layers.Conv2D(width, 3, **options)(hidden)), **arguments)


def staged_backbone(**arguments) -> Backbone:
    """Batch norm, a residual block without batch norm behind it, and a stage whose batch norm is called twice."""
    images = keras.Input((None, None, 2))
    norm = keras.layers.BatchNormalization(momentum=0.9)
    hidden = keras.layers.BatchNormalization(scale=False)(keras.layers.Conv2D(4, 3, padding="same")(images))
    hidden = keras.layers.AveragePooling2D(2, padding="same", name="half")(keras.ops.tanh(hidden))
    hidden = keras.layers.Add(name="block")([hidden, keras.layers.Conv2D(4, 1, activation="tanh")(hidden)])
    model = keras.Model(images, norm(keras.layers.Conv2D(4, 1)(norm(hidden))))
    if "pixel_mean" not in arguments:
        arguments["pixel_range"] = (0, 1)
    return Backbone(model, stage_names=("half", "block"), **arguments)


ENCODERS = (
    Row("digits_cnn", cnn.DigitsCNN, (8, 8, 1), 128, 3, True, 0.0, 4),
    Row(
        "cnn", functools.partial(cnn.CNN, ((3, 4), (5,)), dense=(), kernel_regularization=0.01, pooling="average"),
        (6, 6, 2), 5, 2, True, 0.01, 2,
    ),
    Row(
        "cnn_unpadded",
        functools.partial(
            cnn.CNN, (((3, 4, 2), 5),), dense=(6,), batch_normalization=False, pooling="stride", padding="valid"
        ),
        (8, 8, 1), 6, 1, False, 0.0, 8,
    ),
    Row("paper_cnn_mnist", functools.partial(cnn.PaperCNN, "mnist"), (8, 8, 1), 200, 2, False, 1e-4, 4),
    Row("paper_cnn_cifar100", functools.partial(cnn.PaperCNN, "cifar100"), (4, 4, 3), 256, 2, False, 1e-4, 4),
    Row("lenet", lenet.LeNet, (28, 28, 1), 84, 2, False, 0.0, 12),
    Row("resnet8", functools.partial(ResNet, 8), (8, 8, 3), 64, 3, True, 1e-4, 4),
    Row("resnet50", functools.partial(ResNet50, stem="imagenet", width=2), (32, 32, 3), 64, 4, True, 1e-4, 32),
    Row("resnet50_v2", functools.partial(ResNet50, "bottleneck_v2", width=2), (8, 8, 3), 64, 4, True, 1e-4, 8),
    Row("resnet50_pooled", functools.partial(ResNet50, "pooled"), (8, 8, 3), 512, 4, True, 1e-4, 8),
    Row("resnet18", functools.partial(ResNet18, width=4, kernel_regularization=0.01), (8, 8, 3), 32, 4, True, 0.01, 8),
    Row(
        "preact_resnet18", functools.partial(PreActResNet18, width=4, kernel_regularization=0.01),
        (8, 8, 3), 32, 4, True, 0.01, 8,
    ),
    Row(
        "preact_resnet18_noisymix",
        functools.partial(PreActResNet18, width=4, shortcut="activated", final_normalization=False),
        (8, 8, 3), 32, 4, True, 0.0, 8,
    ),
    Row("wide_resnet10", functools.partial(WideResNet, 10, 1), (4, 4, 3), 64, 3, True, 0.0, 4),
    Row(
        "wide_resnet10_noisymix", functools.partial(WideResNet, 10, 2, variant="noisymix", kernel_regularization=0.01),
        (4, 4, 3), 128, 3, True, 0.01, 4,
    ),
    Row(
        "r2plus1d18", functools.partial(R2Plus1D18, width=2, kernel_regularization=0.01),
        (4, 16, 16, 1), 16, 4, True, 0.01, 16,
    ),
    Row("r3d18", functools.partial(R3D18, "small", width=2, dilated=True), (3, 8, 8, 2), 16, 4, True, 0.0, 8),
    Row("vit", functools.partial(vit.ViT, 4, width=8, depth=3, heads=2), (8, 12, 3), 8, 3, False, 0.0, 4),
    Row(
        "vit_sinusoidal",
        functools.partial(
            vit.ViT, 2, width=8, depth=2, heads=2, positions="sinusoidal", grid=3, pooling="class_and_average",
            frozen_patches=True,
        ),
        (4, 4, 1), 16, 2, False, 0.0, 2,
    ),
    Row("backbone", backbone, (6, 6, 2), 5, 1, False, 0.01, 1),
    Row(
        "backbone_keras_hub", functools.partial(backbones.make, "ViTBackbone"), (backbones.SIDE, backbones.SIDE, 3),
        8, 1, False, 0.0, 0,
    ),
    Row("backbone_stages", staged_backbone, (6, 6, 2), 4, 3, True, 0.0, 1),
    *(
        Row(
            f"text_transformer_{pooling}_{where}",
            functools.partial(
                text_transformer.TextTransformer, WORDS, 6, width=8, depth=2, heads=2, inner=5, pooling=pooling,
                style=text_transformer.TransformerStyle(dropout=0.0, positions=positions, normalization=where),
            ),
            (6,), 8, None, False, 0.0, 1,
        )
        for pooling, positions, where in (("average", "learned", "before"), ("class", "sinusoidal", "behind"))
    ),
)  # fmt: skip

PARAMETERS = [
    pytest.param(row, id=row.name, marks=[pytest.mark.rest] if len(row.image_shape) == 4 else []) for row in ENCODERS
]
# What is not a matter of blocks and readings: one row of each class.
FIRST_OF_CLASS = list({parameter.values[0].kind: parameter for parameter in reversed(PARAMETERS)}.values())
# Files and exports hold layers, and deeper residual networks have those of the shallow ones.
SHALLOW = [row for row in FIRST_OF_CLASS if row.values[0].kind not in (ResNet18, ResNet50, PreActResNet18, R2Plus1D18)]


def images_for(row: Row, count: int = 3, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    if row.is_text:  # sentences that end in some padding
        tokens = generator.integers(1, WORDS, (count, *row.image_shape))
        return np.where(np.arange(row.image_shape[0]) < np.arange(count)[:, None] + 3, tokens, 0).astype(np.int32)
    return generator.random((count, *row.image_shape), dtype=np.float32)


def make_built(row: Row, **arguments):
    """A built encoder with two branches where it has batch norm, and statistics that are not the initial."""
    if not row.is_text:
        arguments = {"branches": 2 if row.normalizes else 1, "pixel_mean": 0.4, "pixel_std": 0.3, **arguments}
    encoder = row.make(**arguments)
    encoder.build((None, *row.image_shape))
    draw = np.random.default_rng(1)
    for variable in encoder.variables:
        if "kernel" not in variable.path:
            variable.assign(draw.uniform(0.5, 1.5, variable.shape))
    return encoder


@functools.cache
def built(row: Row):
    """`make_built`, shared by the properties that leave the encoder as it is."""
    return make_built(row)


def assert_close(actual, expected, tolerance: float = 1e-5) -> None:
    """The largest difference is at most `tolerance` of the largest expected entry."""
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    assert actual.shape == expected.shape
    assert np.abs(actual - expected).max() <= tolerance * np.abs(expected).max()


def branches_of(encoder) -> list[dict]:
    """The keyword of each branch; of text, which has none, nothing."""
    return [{"branch": branch} for branch in range(encoder.branches)] if hasattr(encoder, "branches") else [{}]


def branch_outputs(encoder, images) -> list[np.ndarray]:
    return [encoder(images, **branch, training=False).numpy() for branch in branches_of(encoder)]


def keeps_the_contract(row: Row) -> None:
    encoder, images = built(row), images_for(row)
    assert (encoder.dim, getattr(encoder, "stage_count", None)) == (row.dim, row.stage_count)
    assert encoder.compute_output_shape((None, *row.image_shape)) == (None, row.dim)
    embedding = encoder(images)
    assert embedding.shape == (3, row.dim) and embedding.dtype == tf.float32
    # training defaults to inference, and the rows of a batch do not see each other there.
    np.testing.assert_array_equal(embedding, encoder(images, training=False))
    assert_close(embedding[1:2], encoder(images[1:2]))
    before = [id(variable) for variable in encoder.variables]
    encoder.build((None, *row.image_shape))
    assert [id(variable) for variable in encoder.variables] == before


def accepts_its_smallest_image(row: Row) -> None:
    if row.is_text or not row.smallest:
        pytest.skip("takes tokens, or one size to which images are resized")
    *frames, _, _, channels = row.image_shape
    with pytest.raises(ValueError, match=f"at least {row.smallest}x{row.smallest}"):
        row.make().build((None, *frames, row.smallest - 1, row.smallest, channels))
    row.make().build((None, *frames, row.smallest, row.smallest, channels))


def survives_keras_file_and_clone(row: Row, directory) -> None:
    encoder, images = built(row), images_for(row)
    expected = branch_outputs(encoder, images)
    path = str(directory / "encoder.keras")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", DeprecationWarning)  # NumPy's, about TensorFlow's __array__
        encoder.save(path)
        loaded = keras.saving.load_model(path, safe_mode=True)
    assert type(loaded) is type(encoder) and loaded.get_config() == encoder.get_config()
    for before, after in zip(expected, branch_outputs(loaded, images), strict=True):
        np.testing.assert_array_equal(before, after)
    clone = keras.models.clone_model(encoder)
    clone.build((None, *row.image_shape))
    clone.set_weights(encoder.get_weights())
    np.testing.assert_array_equal(expected[0], clone(images))


def works_inside_a_functional_model(row: Row) -> None:
    encoder, images = built(row), images_for(row)
    inputs = keras.Input(row.image_shape, dtype=row.dtype)
    branch = branches_of(encoder)[-1]
    wrapped = keras.Model(inputs, encoder(inputs, **branch))
    assert wrapped.output_shape == (None, row.dim)
    np.testing.assert_array_equal(wrapped(images), encoder(images, **branch))


def exports(row: Row, directory) -> None:
    encoder, images = built(row), images_for(row)
    archive = keras.export.ExportArchive()
    archive.track(encoder)
    archive.add_endpoint(
        "serving_default",
        lambda x: encoder(x, training=False),
        input_signature=[tf.TensorSpec([None, *row.image_shape], row.dtype)],
    )
    archive.write_out(str(directory / "saved"), verbose=False)
    # TensorFlow keeps the loaded variables only as long as the loaded object.
    loaded = tf.saved_model.load(str(directory / "saved"))
    served = loaded.serving_default(images)
    assert_close(served, encoder(images))


def opens_every_stage_in_a_graph(row: Row) -> None:
    """at_stage sees 0..K in order; a tf.cond changes exactly the chosen hidden state; shapes survive it."""
    encoder, images = built(row), images_for(row)
    if row.stage_count is None:
        assert_close(tf.function(encoder)(images), encoder(images))
        return
    seen = []

    @tf.function
    def changed_at(stage, x):
        def hook(index, hidden):
            seen.append((index, hidden.shape))
            return tf.cond(stage == index, lambda: hidden[::-1], lambda: hidden)

        return encoder(x, training=False, at_stage=hook)

    plain = encoder(images).numpy()
    for stage in range(row.stage_count + 1):
        # Reversing the batch at any one stage reverses the embeddings, which are computed row by row.
        reversed_rows = changed_at(tf.constant(stage), images)
        assert_close(reversed_rows, plain[::-1])
    assert_close(changed_at(tf.constant(-1), images), plain)
    assert [index for index, _ in seen] == list(range(row.stage_count + 1)), "traced once, in order"
    assert seen[0][1][1:] == row.image_shape
    assert all(None not in shape for _, shape in seen)


def trains_every_variable_of_its_branch(row: Row) -> None:
    """Gradients are finite and reach everything but the other branch, whose statistics stand still."""
    encoder, images = make_built(row), images_for(row)
    branches = branches_of(encoder)
    before = branch_outputs(encoder, images)
    moving = [v.numpy() for v in encoder.non_trainable_variables]
    with tf.GradientTape() as tape:
        embedding = encoder(images, training=True, **branches[-1])
        loss = tf.reduce_sum(tf.square(embedding))
    variables = encoder.trainable_variables
    gradients = tape.gradient(loss, variables)
    missing = sum(gradient is None for gradient in gradients)
    norms = sum(v.path.endswith("beta") for v in variables)  # some have no gamma
    learned = sum(v.path.endswith(("gamma", "beta")) for v in variables)
    assert missing == (learned // 2) * (len(branches) - 1), "gamma and beta of the other branch only"
    assert all(np.isfinite(tf.convert_to_tensor(gradient)).all() for gradient in gradients if gradient is not None)
    moved = [(v.numpy() != m).any() for v, m in zip(encoder.non_trainable_variables, moving, strict=True)]
    # The unused branch's own two moving values per norm stay.
    assert sum(moved) == (norms // 2) * 2 if row.normalizes else not any(moved)
    after = branch_outputs(encoder, images)
    if row.normalizes:
        np.testing.assert_array_equal(before[0], after[0])
        assert np.abs(before[1] - after[1]).max() > 0


def penalises_kernels_only(row: Row) -> None:
    encoder = built(row)
    kernels = [v.numpy().astype(np.float64) for v in encoder.variables if v.path.endswith("kernel")]
    expected = row.l2 * sum(np.square(kernel).sum() for kernel in kernels)
    assert len(encoder.losses) == (len(kernels) if row.l2 else 0)
    np.testing.assert_allclose(float(sum(encoder.losses)), expected, rtol=1e-5)


def runs_in_mixed_precision(row: Row) -> None:
    encoder, images = built(row), images_for(row)
    half = make_built(row, dtype="mixed_bfloat16")
    half.set_weights(encoder.get_weights())
    embedding = half(images)
    assert embedding.dtype == tf.bfloat16
    assert all(variable.dtype == "float32" for variable in half.variables)
    assert_close(tf.cast(embedding, tf.float32), encoder(images), tolerance=0.1)
    again = type(half).from_config(half.get_config())
    assert again.dtype_policy.name == "mixed_bfloat16" and again.get_config() == half.get_config()


def refuses_what_does_not_fit(row: Row) -> None:
    if row.is_text:
        pytest.skip("refuses other things: tests/models/test_text_transformer.py")
    encoder, images = built(row), images_for(row)
    *frames, height, width, channels = row.image_shape
    calls = {
        "no branch": lambda: encoder(images, branch=encoder.branches),
        "no branch -1": lambda: encoder(images, branch=-1),
        "divide bytes by 255": lambda: encoder((images * 255).astype(np.uint8)),
        "incompatible with the layer": lambda: encoder(np.zeros((1, *frames, height + 4, width, channels), np.float32)),
        "cannot be rebuilt": lambda: encoder.build((None, *frames, height, width, channels + 1)),
        "known c": lambda: row.make().build((None, *frames, height, width, None)),
        "entries for": lambda: row.make(pixel_mean=(0.1,) * 5).build((None, *row.image_shape)),
    }
    for message, call in calls.items():
        with pytest.raises(ValueError, match=message):
            call()
    if not row.normalizes:
        with pytest.raises(ValueError, match="no batch normalization"):
            row.make(branches=2)


PROPERTIES = (
    keeps_the_contract,
    accepts_its_smallest_image,
    opens_every_stage_in_a_graph,
    trains_every_variable_of_its_branch,
    penalises_kernels_only,
    runs_in_mixed_precision,
)
PROPERTIES_OF_CLASSES = (works_inside_a_functional_model, refuses_what_does_not_fit)
FILE_PROPERTIES = (survives_keras_file_and_clone, exports)
