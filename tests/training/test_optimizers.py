"""LARS and AdamW beside their formulas in NumPy, LAMB beside tensorflow-addons' outputs (tests/golden/addons.md)."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import recordings
import stored
import tensorflow as tf

from tfrobust.training.optimizers import LAMB, LARS, ScheduledAdamW

GOLDEN = recordings.arrays("addons")
STEPS = 6
SCHEDULE = keras.optimizers.schedules.PolynomialDecay(0.5, STEPS, end_learning_rate=0.05)


def problem(seed=0):
    """Weights and the gradients of each step: a kernel, a bias, a kernel of zeros that stands still at first."""
    generator = np.random.default_rng(seed)
    shapes = {"dense/kernel": (4, 3), "dense/bias": (3,), "other/kernel": (2, 2)}
    weights = {name: generator.normal(size=shape) for name, shape in shapes.items()}
    weights["other/kernel"] *= 0
    gradients = [{name: generator.normal(size=shape) for name, shape in shapes.items()} for _ in range(STEPS)]
    gradients[0]["other/kernel"] *= 0
    return weights, gradients


def trained(optimizer, weights, gradients, scale=1.0):
    """The weights after each step, by variables whose paths are those names."""
    variables = []
    for name, value in weights.items():
        scope, _, short = name.rpartition("/")
        with keras.name_scope(scope or "model"):
            variables.append(keras.Variable(value.astype(np.float32), name=short))
    states = []
    for step in gradients:
        optimizer.apply([tf.constant(step[name] * scale, tf.float32) for name in weights], variables)
        states.append({name: variable.numpy() for name, variable in zip(weights, variables, strict=True)})
    return states


def literal_lars(weights, gradients, *, momentum, nesterov, decay, trust, exclude, velocity, denominator):
    """One variable after another in float64, from the descriptions of the codes."""
    states = [{} for _ in gradients]
    for name, w in weights.items():
        free = any(part in name for part in exclude)
        d, v = 0.0 if free else decay, np.zeros_like(w)
        for number, step in enumerate(gradients):
            g, rate = step[name], float(SCHEDULE(number))
            norm = np.linalg.norm

            def ratio(below, w=w, free=free, norm=norm):
                return 1.0 if free or norm(w) == 0 or below == 0 else trust * norm(w) / below

            r = ratio(norm(g + d * w) if denominator == "joint" else norm(g) + d * norm(w))
            if velocity == "steps":
                v = momentum * v + rate * r * (g + d * w)
                w = w - (momentum * v + rate * r * (g + d * w) if nesterov else v)
            elif velocity == "gradients":
                v = momentum * v + r * (g + d * w)
                w = w - rate * (momentum * v + r * (g + d * w) if nesterov else v)
            else:
                v = momentum * v + (g + d * w)
                u = momentum * v + (g + d * w) if nesterov else v
                w = w - rate * ratio(norm(u)) * u
            states[number][name] = w
    return states


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize(
    "velocity, denominator", [("steps", "joint"), ("steps", "sum"), ("gradients", "sum"), ("late", "joint")]
)
@pytest.mark.parametrize("exclude", [(), ("bias",)])
def test_lars_beside_numpy(velocity, denominator, nesterov, exclude):
    settings = {"momentum": 0.8, "nesterov": nesterov, "trust": 0.1, "exclude": exclude}
    settings |= {"velocity": velocity, "denominator": denominator}
    weights, gradients = problem()
    states = trained(LARS(SCHEDULE, weight_decay=0.3, **settings), weights, gradients)
    expected = literal_lars(weights, gradients, decay=0.3, **settings)
    for ours, theirs in zip(states, expected, strict=True):
        for name in weights:
            np.testing.assert_allclose(ours[name], theirs[name], atol=2e-6)
    assert np.all(states[0]["other/kernel"] == 0) and np.any(states[1]["other/kernel"] != 0)


def test_a_step_is_a_share_of_the_weights_whatever_the_gradient_s_size():
    weights, gradients = problem()
    first, larger = (trained(LARS(2.0, trust=0.01), weights, [gradients[0]], scale)[0] for scale in (1.0, 1e4))
    kernel = weights["dense/kernel"]
    assert np.linalg.norm(first["dense/kernel"] - kernel) == pytest.approx(0.02 * np.linalg.norm(kernel), rel=1e-5)
    np.testing.assert_allclose(larger["dense/kernel"], first["dense/kernel"], atol=1e-5)
    # The bias is left out by default: plain SGD.
    np.testing.assert_allclose(first["dense/bias"], weights["dense/bias"] - 2 * gradients[0]["dense/bias"], atol=1e-5)


@pytest.mark.parametrize("name", ["0.0", "0.1", "0.1/without_bias"])
def test_lamb_beside_tensorflow_addons(name):
    weights = {variable: GOLDEN[f"input/weights/{variable}"] for variable in ("kernel", "bias", "zeros")}
    gradients = [{variable: GOLDEN[f"input/gradients/{variable}"][step] for variable in weights} for step in range(5)]
    decay, _, without = name.partition("/")
    rate = float(GOLDEN["input/learning_rate"])
    optimizer = LAMB(rate, weight_decay=float(decay), exclude=("bias",) if without else ())
    for step, state in enumerate(trained(optimizer, weights, gradients)):
        for variable in weights:
            np.testing.assert_allclose(state[variable], GOLDEN[f"lamb/{name}/{variable}"][step], atol=1e-6)
    keras_s = trained(keras.optimizers.Lamb(rate, epsilon=1e-6, weight_decay=float(decay)), weights, gradients)
    off = max(np.abs(keras_s[-1][variable] - GOLDEN[f"lamb/{name}/{variable}"][-1]).max() for variable in weights)
    assert (off < 1e-6) == (name == "0.0")  # Keras's own has decay outside of the ratio


@pytest.mark.parametrize("exclude", [(), ("bias",)])
def test_adamw_with_a_constant_decay_is_keras_s(exclude):
    weights, gradients = problem()
    theirs = keras.optimizers.AdamW(SCHEDULE, weight_decay=0.3)
    theirs.exclude_from_weight_decay(var_names=list(exclude))
    expected = trained(theirs, weights, gradients)  # whose 1 - beta^t has float32's rounding
    for ours, other in zip(
        trained(ScheduledAdamW(SCHEDULE, weight_decay=0.3, exclude=exclude), weights, gradients), expected, strict=True
    ):
        for name in weights:
            np.testing.assert_allclose(ours[name], other[name], atol=5e-5)


@pytest.mark.filterwarnings("ignore:Gradients do not exist")
def test_adamw_counts_the_updates_of_each_variable():
    """A variable that is skipped in the first two of its steps moves as if those had not been, decay of now."""
    weights, gradients = problem()
    decay = keras.optimizers.schedules.PolynomialDecay(0.1, STEPS, end_learning_rate=0.6)
    optimizer = ScheduledAdamW(0.1, weight_decay=decay, exclude=())
    values = [keras.Variable(weights[name].astype(np.float32)) for name in ("dense/kernel", "dense/bias")]
    for number, step in enumerate(gradients[:4]):
        parts = [tf.constant(step[name], tf.float32) for name in ("dense/kernel", "dense/bias")]
        optimizer.apply([parts[0], None if number < 2 else parts[1]], values)
    w, m, v = weights["dense/bias"], 0.0, 0.0
    for count, number in ((1, 2), (2, 3)):
        g = gradients[number]["dense/bias"]
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        d = 0.1 + 0.5 * number / STEPS
        w = w - 0.1 * (m / (1 - 0.9**count) / (np.sqrt(v / (1 - 0.999**count)) + 1e-8) + d * w)
    np.testing.assert_allclose(values[1], w, rtol=1e-5)


def small_model(policy="float32"):
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(4, activation="tanh", dtype=policy), keras.layers.BatchNormalization()]
    model = keras.Sequential([keras.Input((3,)), *layers, keras.layers.Dense(1, dtype=policy)])
    return model


def batches(count=8):
    generator = np.random.default_rng(3)
    return [(generator.normal(size=(16, 3)).astype("float32"), generator.normal(size=(16, 1))) for _ in range(count)]


OPTIMIZERS = {
    "lars": lambda: LARS(SCHEDULE, weight_decay=0.1, trust=0.05, nesterov=True),
    "lamb": lambda: LAMB(0.05, weight_decay=0.1, exclude=None),
    "adamw": lambda: ScheduledAdamW(0.05, weight_decay=SCHEDULE),
}


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_scaled_losses_change_nothing(make):
    """As `compile` wraps it under float16."""
    weights, gradients = problem()
    plain = trained(make(), weights, gradients)
    wrapped = keras.optimizers.LossScaleOptimizer(make(), initial_scale=2.0**10)
    scaled = trained(wrapped, weights, gradients, scale=2.0**10)
    assert all(np.array_equal(scaled[-1][name], plain[-1][name]) for name in weights)


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_a_keras_file_and_a_checkpoint_go_on_to_the_bit(make, tmp_path):
    parts = batches()
    trained_model = small_model()
    trained_model.compile(make(), "mse", jit_compile=False)
    for number, batch in enumerate(parts):
        trained_model.train_on_batch(*batch)
        if number == 3:
            trained_model.save(tmp_path / "model.keras")
            tf.train.Checkpoint(model=trained_model, optimizer=trained_model.optimizer).write(
                str(tmp_path / "checkpoint")
            )
    again = small_model()
    again.compile(make(), "mse", jit_compile=False)
    again.optimizer.build(again.trainable_variables)
    tf.train.Checkpoint(model=again, optimizer=again.optimizer).read(str(tmp_path / "checkpoint")).assert_consumed()
    loaded = keras.saving.load_model(tmp_path / "model.keras", safe_mode=True)
    assert type(loaded.optimizer) is type(trained_model.optimizer)
    assert loaded.optimizer.get_config() == trained_model.optimizer.get_config()
    for model in (again, loaded):
        for batch in parts[4:]:
            model.train_on_batch(*batch)
        for weight, expected in zip(model.get_weights(), trained_model.get_weights(), strict=True):
            np.testing.assert_array_equal(weight, expected)


def test_norms_biases_and_the_probe_are_left_out():
    from tfrobust.methods.supervised import Supervised
    from tfrobust.models.heads.linear import LinearHead
    from tfrobust.models.resnets.resnet import ResNet

    method = Supervised(ResNet(8, widths=(2, 2, 2)), LinearHead(3))
    method.build((None, 8, 8, 1))
    optimizer = LARS()
    optimizer.build(method.trainable_variables)
    adapted = [
        variable.path
        for variable, is_adapted in zip(method.trainable_variables, optimizer._adapted, strict=True)
        if is_adapted
    ]
    assert adapted == [
        variable.path for variable in method.encoder.trainable_variables if variable.path.endswith("kernel")
    ]


def foreign_encoder():
    """Normalization layers under other names than Keras gives them, as in `keras.applications`, and one of rank 3."""
    layers, spectral = keras.layers, keras.layers.SpectralNormalization(keras.layers.Dense(6, name="inner"), name="sn")
    return keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(4, 3, name="conv1_conv"),
            layers.BatchNormalization(name="conv1_bn"),
            layers.GroupNormalization(2, name="stage_gn"),
            layers.DepthwiseConv2D(3, name="depthwise"),
            layers.LayerNormalization(axis=(1, 2, 3), name="ln"),
            layers.Reshape((16, 4)),
            layers.EinsumDense("abc,cde->abde", output_shape=(16, 2, 3), bias_axes="de", name="heads"),
            layers.RMSNormalization(axis=-1, name="rms"),
            layers.Flatten(),
            spectral,
        ]
    )


def test_foreign_encoders_keep_their_norms_and_biases_out():
    model = foreign_encoder()
    variables = model.trainable_variables
    adapted = {}
    for name, exclude in (("default", None), ("nothing", ()), ("gamma", "gamma")):
        optimizer = LARS(exclude=exclude)
        optimizer.build(variables)
        adapted[name] = [
            variable.path for variable, is_adapted in zip(variables, optimizer._adapted, strict=True) if is_adapted
        ]
    kernels = [variable.path for variable in variables if variable.path.endswith("kernel")]
    assert len(kernels) == 4 and len(variables) == 15
    assert adapted["default"] == kernels
    assert len(adapted["nothing"]) == 15 and len(adapted["gamma"]) == 12
    # What was excluded has neither decay nor a ratio: plain SGD.
    gradient = [np.ones(variable.shape, np.float32) for variable in variables]
    before = [variable.numpy() for variable in variables]
    optimizer = LARS(0.5, weight_decay=0.3)
    optimizer.apply(gradient, variables)
    plain = [
        variable.path
        for variable, old in zip(variables, before, strict=True)
        if np.allclose(variable.numpy(), old - 0.5)
    ]
    assert sorted(plain) == sorted(variable.path for variable in variables if variable.path not in kernels)


def test_one_pattern_is_not_taken_for_its_letters():
    assert LARS(exclude="bias").exclude == ("bias",)


_REPLICAS = stored.text(globals(), "replicas")


def test_two_replicas_do_what_one_does():
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    done = subprocess.run([sys.executable, "-c", _REPLICAS], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
