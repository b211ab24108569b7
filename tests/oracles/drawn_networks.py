"""Small networks drawn by Hypothesis, with casts, policies, huge and tiny weights, and what they do inside a ball."""

import collections
import dataclasses

import hypothesis
import keras
import numpy as np
import stored
import tensorflow as tf
from hypothesis import strategies as st

from tfrobust.certification import certify, network
from tfrobust.models.shared.group_sort import GroupSort  # noqa: F401 - in the table of layers

LAYERS = keras.layers
# Powers of ten that the weights of a layer are multiplied by; those of float32 end at -45 and 38.
POWERS = (0,) * 12 + (-1, 1, 3, -3, 10, -10, 20, -20, 30, -30, 37, -38, -42)
POLICIES = ("float32",) * 120 + ("float16", "bfloat16", "float64", "mixed_float16", "mixed_bfloat16")
INPUTS = ("float32",) * 30 + ("int32", "uint8", "float16", "bfloat16", "float64")
ACTIVATIONS = (
    ("relu",) * 4 + ("relu6",) * 2 + (None, "leaky_relu", "elu", "tanh", "sigmoid", "softplus", "hard_sigmoid")
)
ACTIVATIONS += ("silu", "gelu", "hard_silu", "selu", "softsign", "exponential")
# Layers of a drawn network by kind; each takes (activation or None, generator, channels, options).
KINDS = stored.table(globals(), "layers_of_kinds")
# Layers of sequences and of volumes, each between two changes of shape.
SEQUENCES = tuple(stored.table(globals(), "sequences"))
VOLUMES = tuple(stored.table(globals(), "volumes"))
MERGERS = stored.table(globals(), "mergers")
SCALINGS = ("rescaling", "constants")
# Steps that apply several layers, or a layer several times.
JOINS = ("sequence", "volume", "twice", "rectifiers", *MERGERS, *SCALINGS)
# Of networks that all methods bound: weights that are neither huge nor tiny, float32, and mostly piecewise linear.
_PLAIN_KINDS = tuple(kind for kind in (*KINDS, *JOINS) if kind not in ("sequence", "volume"))
_PLAIN_ACTIVATIONS = ("relu",) * 4 + ("leaky_relu",) * 2 + ("relu6", None, "tanh", "silu")


@dataclasses.dataclass(frozen=True)
class Step:
    """One layer of a drawn network."""

    kind: str
    power: int
    policy: str
    activation: str | None


@dataclasses.dataclass(frozen=True)
class Drawn:
    """A network as it was drawn, and a ball."""

    seed: int
    shape: tuple
    input: str
    steps: tuple
    last: Step
    softmax: bool
    quantized: bool
    power: float
    norm: str = "linf"

    @property
    def epsilon(self) -> float:
        """The radius."""
        return 10.0**self.power


def networks(plain: bool = False):
    """Return the strategy of `Drawn`; plain networks compute in float32, with usual weights, and have a norm."""

    def step(kinds):
        policies, powers, activations = POLICIES, POWERS, ACTIVATIONS
        if plain:
            policies, powers, activations = ("float32",), (0,), _PLAIN_ACTIVATIONS
        return st.builds(Step, st.sampled_from(kinds), *map(st.sampled_from, (powers, policies, activations)))

    return st.builds(
        Drawn,
        seed=st.integers(0, 2**32 - 1),
        shape=st.sampled_from(((2, 2, 1), (3, 3, 1), (2, 2, 2) if plain else (4, 3, 2))),
        input=st.sampled_from(("float32",) if plain else INPUTS),
        steps=st.lists(step(_PLAIN_KINDS if plain else (*KINDS, *JOINS)), min_size=int(plain), max_size=4).map(tuple),
        last=step(("dense",)),
        softmax=st.sampled_from((False, False, False, True)),
        quantized=st.sampled_from((False,) * (1 if plain else 29) + (not plain,)),
        power=st.floats(*((-2.0, -0.3) if plain else (-7.0, -0.3))),
        norm=st.sampled_from(("linf", "linf", "l2", "l1") if plain else ("linf",)),
    )


def build(drawn: Drawn) -> keras.Model:
    """Return the Keras model of a drawn network."""
    generator = np.random.default_rng(drawn.seed)
    image = keras.Input(drawn.shape, dtype=drawn.input)
    hidden, powers = image, {}
    for step in drawn.steps:
        hidden = _applied(step, hidden, generator, powers)
    last = LAYERS.Dense(3, activation="softmax" if drawn.softmax else None, dtype=drawn.last.policy)
    powers[last.name] = drawn.last.power
    model = keras.Model(image, last(LAYERS.Flatten()(hidden)))
    for layer in model.layers:
        if layer.weights:
            _fill(layer, powers[layer.name], generator)
    if drawn.quantized:
        model.quantize("int8")
    return model


def _applied(step: Step, hidden, generator, powers: dict[str, int]):
    """Apply the layers of a step, and note the powers of their weights."""
    options, factor = {"dtype": step.policy}, np.float64(10.0**step.power)
    if step.kind in MERGERS:
        part = LAYERS.Dense(hidden.shape[-1], **options)
        powers[part.name] = step.power
        return MERGERS[step.kind](**options)([hidden, part(hidden)])
    if step.kind == "twice":
        part = LAYERS.Dense(hidden.shape[-1], activation=step.activation, **options)
        powers[part.name] = step.power
        return part(part(hidden))
    if step.kind == "rectifiers":
        return LAYERS.Concatenate(**options)([LAYERS.ReLU(**options)(hidden), LAYERS.LeakyReLU(0.1, **options)(hidden)])
    if step.kind == "rescaling":
        return LAYERS.Rescaling(factor, offset=-0.3 * factor, **options)(hidden)
    if step.kind == "constants":
        return LAYERS.Normalization(mean=0.5, variance=np.clip(factor**2, 1e-40, 1e37), **options)(hidden)
    if step.kind in ("sequence", "volume"):
        sequence = step.kind == "sequence"
        layers = SEQUENCES if sequence else VOLUMES
        layer = layers[generator.integers(len(layers))](**options)
        powers[layer.name] = step.power
        *extent, channels = hidden.shape[1:]
        shape = (int(np.prod(extent)), channels) if sequence else (*extent, 1, channels)
        hidden = layer(LAYERS.Reshape(shape)(hidden))
        shape = (*hidden.shape[1:-1], 1) if sequence else (hidden.shape[1], hidden.shape[2] * hidden.shape[3])
        return LAYERS.Reshape((*shape, hidden.shape[-1]))(hidden)
    layer = KINDS[step.kind](step.activation, generator, hidden.shape[-1], **options)
    powers[layer.name] = step.power
    return layer(hidden)


def _fill(layer, power: int, generator) -> None:
    values = []
    for weight in layer.weights:
        value = generator.normal(size=weight.shape) * generator.choice([0.3, 1.0])
        name = weight.path.rsplit("/", 1)[-1]
        if "variance" in name:
            value = np.abs(value) * 10.0 ** generator.choice([0, 0, -6, 6, -30, 30])
        elif name == "alpha":
            value = np.abs(value) % 1.0 if generator.random() < 0.9 else value
        elif name.endswith(("kernel", "gamma")) or generator.random() < 0.3:
            # Some weights of a layer alone are huge or tiny.
            some = generator.random(weight.shape) < generator.choice([0.2, 1.0])
            value = np.where(some, value * 10.0**power, value)
        values.append(np.clip(value, -3e38, 3e38).astype(np.float32))
    layer.set_weights(values)


def points(model, image: np.ndarray, label: int, epsilon: float, generator, count: int = 160) -> np.ndarray:
    """Return images inside the ball: corners, some of them along the gradient, single pixels, and uniform ones."""
    signs = generator.choice([-1.0, 1.0], size=(count, *image.shape))
    inner = generator.uniform(-1.0, 1.0, size=(count // 4, *image.shape))
    single = np.eye(image.size).reshape(-1, *image.shape)
    moves = np.concatenate([signs, inner, single, -single, _ascending(model, image, label)])
    moved = image + (epsilon * moves).astype(np.float32)
    return np.clip(moved, np.maximum(image - np.float32(epsilon), 0), np.minimum(image + np.float32(epsilon), 1))


def _ascending(model, image: np.ndarray, label: int) -> np.ndarray:
    """Return the two signs of the gradient of each other logit less the label's."""
    point = tf.constant(image[None])
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        tape.watch(point)
        logits = tf.cast(model(point, training=False), tf.float32)
        margins = [logits[:, other] - logits[:, label] for other in range(3) if other != label]
    gradients = [tape.gradient(margin, point) for margin in margins]
    signs = [np.nan_to_num(np.sign(gradient.numpy())) for gradient in gradients if gradient is not None]
    return np.concatenate(
        [sign * direction for direction in signs for sign in (1, -1)] or [np.zeros((0, *image.shape))]
    )


def sample(count: int, seed: int, plain: bool = False) -> list[Drawn]:
    """Draw different networks."""
    drawn = {}

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=3 * count,
        deadline=None,
        database=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(networks(plain))
    def run(network):
        drawn[network] = None

    run()
    return list(drawn)[:count]


def examine_all(count: int, seed: int) -> tuple[collections.Counter, list[str]]:
    """Draw different networks and examine them; return their number by the outcome, and all contradictions."""
    outcomes, contradictions = collections.Counter(), []
    for number, drawn in enumerate(sample(count, seed)):
        outcome, contradiction = examine(drawn)
        outcomes[outcome] += 1
        contradictions += [contradiction] if contradiction else []
        if number % 100 == 99:
            keras.backend.clear_session(free_memory=False)
    return outcomes, contradictions


def examine(drawn: Drawn) -> tuple[str, str]:
    """Compare the bounds of a drawn network with what the model does inside the ball.

    Returns:
        ("no model", "refused", "none", "bounded" or "certified"; what contradicts a bound, or "").
    """
    generator = np.random.default_rng(drawn.seed + 1)
    image = generator.choice([generator.uniform(size=drawn.shape), generator.integers(0, 2, drawn.shape)])
    image = image.astype(np.float32)
    try:
        model = build(drawn)
        label = int(np.nan_to_num(outputs(model, image[None]))[0].argmax())
    except (TypeError, ValueError, tf.errors.OpError):
        return "no model", ""  # such as an average of whole numbers
    try:
        # The largest of all three bounds.
        options = {"epsilon": drawn.epsilon, "method": "crown"}
        margin = certify.certified_margins(network.walk(model), image[None], np.array([label]), **options)[0]
    except network.NoBoundsError:
        return "refused", ""
    logits = outputs(model, points(model, image, label, drawn.epsilon, generator))
    rivals = np.delete(logits, label, axis=1).max(1)
    correct = np.isfinite(logits).all(1) & (logits[:, label] > rivals)
    if certify.certified(margin) and not correct.all():
        return "certified", f"{(~correct).sum()} images in the certified ball of {drawn} are misclassified"
    if np.isfinite(margin) and not drawn.softmax and not (logits[:, label] - rivals >= margin).all():
        return "bounded", f"{margin} is no bound of the margin of {drawn}"
    return ("certified" if certify.certified(margin) else "bounded" if margin > -np.inf else "none"), ""


def outputs(model, images: np.ndarray) -> np.ndarray:
    """Return the outputs of the model as it is deployed, in float64."""
    return np.asarray(tf.cast(model(images, training=False), tf.float32), np.float64)
