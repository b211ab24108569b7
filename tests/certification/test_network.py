"""The walk from Keras models to operations: outputs are reproduced, points stay inside, unknown layers are refused."""

import keras
import numpy as np
import pytest
import stored
import tensorflow as tf

from tfrobust.certification import certify, intervals, linear_bounds
from tfrobust.certification.network import NoBoundsError, walk
from tfrobust.certification.operations import Box
from tfrobust.keras.models import CNN, Encoder, LinearHead, MLPHead, PreActResNet18, ResNet, ViT  # noqa: F401
from tfrobust.methods.supervised import Supervised
from tfrobust.models.shared.blocks import ConvolutionStyle, PreActivationBlock, ResidualBlock

LAYERS = keras.layers
SHAPE = (8, 8, 2)


@keras.saving.register_keras_serializable(package="tests")
class SmallResidual(Encoder):
    """Both residual blocks, with a projection each, and PyTorch's padding."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        style = ConvolutionStyle(symmetric=True)
        self.compose(
            [
                [ResidualBlock(((4, 3, 2), (4, 3, 1)), project=True, normalize_projection=True, style=style)],
                [PreActivationBlock(((6, 3, 1), (6, 3, 1)), project=True, shortcut="activated")],
                [PreActivationBlock(((6, 3, 1),))],
            ],
            [LAYERS.GlobalAveragePooling2D()],
            dim=6,
        )


def randomized(model):
    """Give every variable a value that shows in the output, with scales of both signs."""
    generator = np.random.default_rng(0)
    for variable in model.variables:
        if variable.dtype != "float32":
            continue
        value = generator.normal(size=variable.shape) * (0.3 if len(variable.shape) > 1 else 0.5)
        variable.assign(np.abs(value) + 0.3 if "variance" in variable.path else value)
    return model


def method(encoder, head=None):
    model = Supervised(encoder, head or LinearHead(3))
    model.build((None, *SHAPE))
    return model


def functional():
    image = keras.Input(SHAPE)
    hidden = LAYERS.Rescaling(2.0, offset=-1.0)(image)
    hidden = LAYERS.ZeroPadding2D(1)(hidden)
    hidden = LAYERS.LeakyReLU(0.1)(LAYERS.BatchNormalization()(LAYERS.Conv2D(4, 3, use_bias=False)(hidden)))
    other = LAYERS.Conv2D(4, 3, padding="same", activation="tanh")(hidden)
    hidden = LAYERS.Add()([hidden, other]) + hidden
    hidden = LAYERS.Dropout(0.5)(LAYERS.MaxPooling2D()(hidden))
    hidden = LAYERS.AveragePooling2D(2, padding="same")(hidden)
    hidden = LAYERS.Dense(5, activation="softplus")(LAYERS.Reshape((16,))(hidden))
    return keras.Model(image, LAYERS.Dense(3)(LAYERS.ELU()(hidden)))


MODELS = stored.table(globals(), "models_of_the_library")
FIRST = ("cnn", "residual")


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=() if name in FIRST else pytest.mark.rest) for name in MODELS],
)
def case(request):
    model = randomized(MODELS[request.param]())
    images = np.random.default_rng(1).uniform(size=(4, *SHAPE)).astype(np.float32)
    return model, walk(model), images, model(images, training=False).numpy()


def test_the_operations_give_the_outputs_and_the_box_of_a_point_holds_them(case):
    model, network, images, outputs = case
    assert certify.reproduces(network, images, outputs)
    point = tf.constant(images, tf.float64)
    boxes, fewer = (
        intervals.propagate(network, Box(point, point), for_margins=for_margins) for for_margins in (False, True)
    )
    labels = tf.constant([0, 1, 2, 0])
    np.testing.assert_array_equal(*(intervals.margins(network, variant, labels) for variant in (boxes, fewer)))
    assert fewer[0].lower is None
    box = boxes[-1]
    assert np.all((box.lower <= outputs) & (outputs <= box.upper))
    exact = intervals.logits(network, images).numpy()
    np.testing.assert_allclose(exact, outputs, rtol=1e-4, atol=1e-5)
    assert not certify.reproduces(network, images, outputs + np.eye(4, 3, dtype=np.float32))


def test_sampled_and_attacked_points_stay_inside_all_bounds(case):
    model, network, images, _ = case
    epsilon, labels = 0.03, tf.constant([0, 1, 2, 0])
    bounds = {
        name: certify.certified_margins(network, images, labels, epsilon=epsilon, method=name)
        for name in certify.METHODS[:2]
    }
    generator = np.random.default_rng(2)
    points = [images + epsilon * generator.choice([-1.0, 0.0, 1.0], size=images.shape) for _ in range(20)]
    moved = tf.constant(images)
    for _ in range(5):
        with tf.GradientTape() as tape:
            tape.watch(moved)
            loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(moved, training=False))
        step = moved + epsilon / 2 * tf.sign(tape.gradient(loss, moved))
        moved = tf.clip_by_value(step, images - epsilon, images + epsilon)
    points.append(moved.numpy())
    for point in points:
        logits = model(np.clip(point, 0.0, 1.0).astype(np.float32), training=False).numpy()
        label_logit = logits[np.arange(4), labels]
        rival = np.where(np.eye(3, dtype=bool)[labels], -np.inf, logits).max(-1)
        for name, bound in bounds.items():
            assert np.all(label_logit - rival >= bound), name
    assert np.all(bounds["crown_ibp"] >= bounds["ibp"])
    wider = certify.certified_margins(network, images, labels, epsilon=2 * epsilon)
    assert np.all(wider < bounds["ibp"])


@pytest.mark.rest
@pytest.mark.parametrize("encoder", [lambda: ResNet(depth=8), PreActResNet18], ids=["resnet", "preactivation"])
def test_residual_networks_of_the_library_are_reproduced(encoder):
    model = method(encoder())
    images = np.random.default_rng(1).uniform(size=(2, *SHAPE)).astype(np.float32)
    assert certify.reproduces(walk(model), images, model(images, training=False).numpy())


@pytest.mark.rest
@pytest.mark.parametrize("kind", [keras.applications.MobileNet, keras.applications.MobileNetV2])
def test_mobile_networks_are_reproduced(kind):
    model = kind(input_shape=(32, 32, 3), alpha=0.35 if "V2" in kind.__name__ else 0.25, weights=None, classes=4)
    images = np.random.default_rng(1).uniform(size=(2, 32, 32, 3)).astype(np.float32)
    assert certify.reproduces(walk(model), images, model(images, training=False).numpy())


def test_coefficients_of_a_residual_sum_add_up():
    image = keras.Input((2,))
    model = keras.Model(image, LAYERS.Add()([image, LAYERS.Dense(2)(image)]))
    model.layers[1].set_weights([-np.eye(2), np.ones(2)])  # the sum is 1 whatever the image
    network = walk(model)
    boxes = intervals.propagate(network, Box(*(tf.constant([[end] * 2], tf.float64) for end in (0.0, 1.0))))
    assert float(boxes[-1].lower[0, 0]) == pytest.approx(0.0, abs=1e-4)  # intervals forget that both are one image
    bounds = linear_bounds.lower_bounds(network, boxes, tf.eye(2, dtype=tf.float64)[None])
    np.testing.assert_allclose(bounds, [[1.0, 1.0]], atol=1e-4)


@pytest.mark.rest
def test_full_linear_bounds_are_at_least_as_tight():
    network = walk(randomized(MODELS["cnn"]()))
    images, labels = np.random.default_rng(1).uniform(size=(1, *SHAPE)), np.array([1])
    margins = [
        certify.certified_margins(network, images, labels, epsilon=0.01, method=name)[0] for name in certify.METHODS[:3]
    ]
    assert margins[0] <= margins[1] <= margins[2]


@pytest.mark.parametrize("layers, named", stored.rows(globals(), "layers_without_bounds_are_refused_by_name"))
def test_layers_without_bounds_are_refused_by_name(layers, named):
    with pytest.raises(NoBoundsError, match=named):
        walk(keras.Sequential([keras.Input(SHAPE), *layers]))


@pytest.mark.parametrize("kind", [keras.Sequential, keras.Model, Supervised])
def test_models_that_define_call_themselves_are_refused(kind):
    negated = type("Negated", (kind,), {"call": lambda self, inputs, training=None: -kind.call(self, inputs)})
    image, head = keras.Input(SHAPE), LAYERS.Dense(3)
    parts = {keras.Sequential: ([image, head],), keras.Model: (image, head(image))}
    with pytest.raises(NoBoundsError, match="of type Negated .which defines `call` itself"):
        walk(negated(*parts.get(kind, (CNN(((4,),), dense=()), LinearHead(3)))))


def test_a_method_that_defines_propagate_itself_is_refused():
    def negated(self, images, *, training=True, **keywords):
        embedding, logits = Supervised.propagate(self, images, training=training, **keywords)
        return embedding, -logits

    kind = type("Negated", (Supervised,), {"propagate": negated})
    with pytest.raises(NoBoundsError, match="of type Negated .which defines `propagate` itself"):
        walk(kind(CNN(((4,),), dense=()), LinearHead(3)))


@pytest.mark.parametrize("name", ["Add", "Subtract"])
def test_a_layer_that_is_named_as_an_operation_of_keras_is_refused(name):
    def call(self, inputs):
        return inputs[0] - 10.0 * inputs[1]

    kind = type(name, (keras.layers.Layer,), {"call": call})
    image = keras.Input(SHAPE)
    flat = LAYERS.Flatten()(image)
    with pytest.raises(NoBoundsError, match=f"of type {name}"):
        walk(keras.Model(image, kind()([flat, LAYERS.Dense(int(np.prod(SHAPE)))(flat)])))


def test_networks_of_the_library_without_bounds_are_refused():
    with pytest.raises(NoBoundsError, match="of type ViT"):
        walk(method(ViT(4, width=8, depth=1, heads=2)))
    with pytest.raises(NoBoundsError, match="normalized features"):
        walk(method(CNN(((4,),), dense=()), LinearHead(3, normalized=True)))
    with pytest.raises(NoBoundsError, match="which changes pixels"):
        walk(method(CNN(((4,),), dense=(), resize_to=4)))
    half = method(CNN(((4,),), dense=(), dtype="mixed_float16"))
    with pytest.raises(ValueError, match="computes in float16"):
        certify.certified_margins(half, np.zeros((1, *SHAPE)), np.zeros(1), epsilon=0.1)
