"""Stages and batch-norm branches of functional models: cuts against a search of paths, parts against the whole."""

import keras
import numpy as np
import pytest
import stored
import tensorflow as tf
from keras import layers

from tfrobust.errors import InputError
from tfrobust.models.shared import functional, normalization

SIDE = 8


def images(count: int = 3, seed: int = 0) -> tf.Tensor:
    return tf.constant(np.random.default_rng(seed).random((count, SIDE, SIDE, 2), dtype=np.float32))


def convolve(hidden, name: str, width: int = 4, stride: int = 1):
    hidden = layers.Conv2D(width, 3, strides=stride, padding="same", name=f"{name}_conv")(hidden)
    return layers.Activation("tanh", name=name)(layers.BatchNormalization(name=f"{name}_bn", momentum=0.5)(hidden))


def residual() -> keras.Model:
    """Padding, two residual blocks, the second with stride 2."""
    inputs = keras.Input((SIDE, SIDE, 2), name="pixels")
    hidden = convolve(layers.Rescaling(2.0, -1.0, name="scaled")(inputs), "stem")
    block = layers.Add(name="block_1")([hidden, convolve(hidden, "inner")])
    padded = layers.ZeroPadding2D(((0, 1), (0, 1)), name="padded")(block)
    half = layers.AveragePooling2D(2, name="shortcut")(padded)
    last = layers.Add(name="block_2")([half, convolve(block, "strided", stride=2)])
    return keras.Model(inputs, convolve(last, "out"), name="residual")


def dense() -> keras.Model:
    """Each layer of the block sees all earlier maps."""
    inputs = keras.Input((SIDE, SIDE, 2))
    hidden = convolve(inputs, "stem")
    for number in (1, 2):
        hidden = layers.Concatenate(name=f"concat_{number}")([hidden, convolve(hidden, f"dense_{number}")])
    return keras.Model(inputs, layers.AveragePooling2D(2, name="half")(hidden), name="dense")


def repeated() -> keras.Model:
    """One layer and one batch normalization before the cut and after it, and an operation without a layer."""
    inputs = keras.Input((SIDE, SIDE, 2))
    shared, norm = layers.Conv2D(2, 3, padding="same", name="shared"), layers.BatchNormalization(name="norm")
    hidden = norm(shared(inputs))
    middle = layers.Activation("tanh", name="middle")(hidden)
    return keras.Model(inputs, keras.ops.square(norm(shared(middle))) + middle, name="repeated")


def called_twice_in_a_row() -> keras.Model:
    """The layer before the cut is the first one after it."""
    inputs = keras.Input((SIDE, SIDE, 2))
    shared = layers.Conv2D(2, 3, padding="same", activation="tanh", name="shared")
    first = layers.Activation("linear", name="first")
    return keras.Model(inputs, first(shared(first(shared(inputs)))), name="twice")


def nested() -> keras.Model:
    """A functional and a sequential model inside."""
    tail = keras.Sequential([keras.Input((4, 4, 4)), layers.BatchNormalization(name="tail_bn")], name="tail")
    inputs = keras.Input((SIDE, SIDE, 2))
    hidden = layers.Dropout(0.0, name="dropped")(residual()(inputs))
    return keras.Model(inputs, tail(hidden), name="nested")


def operations() -> keras.Model:
    inputs = keras.Input((SIDE, SIDE, 2))
    model = keras.Model(inputs, keras.ops.square(keras.ops.negative(inputs)), name="operations")
    next(operation for operation in model.operations if operation.name.startswith("negative")).name = "negate"
    return model


def sequential() -> keras.Model:
    chain = [layers.Conv2D(3, 3, name="conv"), layers.BatchNormalization(name="bn"), layers.Flatten(name="flat")]
    return keras.Sequential([keras.Input((SIDE, SIDE, 2)), *chain, layers.Dense(2, name="last")], name="chain")


SPLITS = stored.table(globals(), "splits")


def perturb(model: keras.Model) -> keras.Model:
    """Move all values away from the initial ones."""
    draw = np.random.default_rng(3)
    for variable in model.variables:
        if "seed" not in variable.path:
            variable.assign(variable + draw.uniform(0.1, 0.5, variable.shape))
    return model


def gradients(run, model) -> tuple[np.ndarray, list]:
    x = images()
    with tf.GradientTape() as tape:
        tape.watch(x)
        out = run(x)
        loss = tf.reduce_sum(out * tf.cast(tf.reshape(tf.range(tf.size(out)), tf.shape(out)), out.dtype))
    return out.numpy(), tape.gradient(loss, [x, *model.trainable_variables])


def chain(stages, **keywords):
    def run(hidden, branch=0):
        for stage in stages:
            keywords_of_stage = {"branch": branch} if getattr(stage, "branched", False) else {}
            hidden = stage(hidden, **keywords_of_stage, **keywords)
        return hidden

    return run


# --------------------------------------------------------------------------------------------------------- cuts


def path_around(model, tensor) -> bool:
    """Search for a path from the output to the input that does not use the tensor."""
    waiting, seen = [model.outputs[0]], set()
    while waiting:
        current = waiting.pop()
        if current is tensor or id(current) in seen:
            continue
        if current is model.inputs[0]:
            return True
        seen.add(id(current))
        operation, node, _ = current._keras_history
        waiting += operation._inbound_nodes[node].input_tensors
    return False


@pytest.mark.parametrize("seed", range(8))
def test_cuts_are_the_tensors_without_a_path_around_them(seed):
    draw = np.random.default_rng(seed)
    tensors = [keras.Input((2,))]
    for _ in range(12):
        near = range(max(0, len(tensors) - 3), len(tensors))
        sources = draw.choice(near, size=min(len(near), draw.integers(1, 3)), replace=False)
        used = [tensors[index] for index in sources]
        tensors.append(layers.Add()(used) if len(used) > 1 else layers.ReLU()(used[0]))
    model = keras.Model(tensors[0], tensors[-1])
    expected = [tensor for tensor in tensors[1:-1] if not path_around(model, tensor)]
    # Layers that do not lead to the output are not in the model.
    inside = {layer.name for layer in model.layers}
    expected = [tensor for tensor in expected if tensor._keras_history.operation.name in inside]
    assert [id(tensor) for tensor in functional.cuts(model)] == [id(tensor) for tensor in expected]


@pytest.mark.parametrize("name", SPLITS)
def test_stages_compose_to_the_model_with_its_gradients(name):
    make, names = SPLITS[name]
    model = perturb(make())
    stages = functional.make_stages(model, names)
    assert len(stages) == len(names) + 1
    assert {id(v) for stage in stages for v in stage.variables} == {id(v) for v in model.variables}
    for training in (False, True):
        expected, expected_gradients = gradients(lambda x: model(x, training=training), model)  # noqa: B023
        outputs, stage_gradients = gradients(chain(stages, training=training), model)
        np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-5)
        for gradient, other in zip(stage_gradients, expected_gradients, strict=True):
            np.testing.assert_allclose(gradient, other, rtol=1e-3, atol=1e-3)


def test_a_layer_called_before_and_after_a_cut_keeps_both_calls():
    """`first` is called twice, so that its output is no place; a part that begins there is still exact."""
    model = called_twice_in_a_row()
    middle = next(t for t in functional.cuts(model) if t._keras_history.operation.name == "first")
    parts = [functional._part(model.inputs[0], middle, "a"), functional._part(middle, model.outputs[0], "b")]
    np.testing.assert_allclose(parts[1](parts[0](images())), model(images()), rtol=1e-5)
    with pytest.raises(InputError, match="uses the layer 'first' 2 times"):
        functional.find_cuts(model, ("first",))


REFUSED = stored.cases(__file__, "cuts", globals())


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_cut_is_refused_in_one_line(case):
    make, names, message = REFUSED[case]
    with pytest.raises(InputError, match=message) as caught:
        functional.make_stages(make(), names)
    assert "\n" not in str(caught.value)


def test_models_without_cuts_are_refused():
    inputs = keras.Input((SIDE, SIDE, 2))
    uncut = keras.Model(inputs, layers.Conv2D(2, 3, name="all")(inputs), name="whole")
    for names, message in (("resolution", "finds no place in whole"), (("x",), "It can be cut nowhere")):
        with pytest.raises(InputError, match=message):
            functional.make_stages(uncut, names)
    two = keras.Model(inputs, [inputs + 1.0, inputs + 2.0], name="two")
    with pytest.raises(InputError, match="1 inputs and 2 outputs"):
        functional.cuts(two)

    class Subclassed(keras.Model):
        def call(self, x):
            return x

    with pytest.raises(InputError, match="is no functional model"):
        functional.make_stages(Subclassed(name="own"), ("x",))


def names_of(model, rule: str) -> list[str]:
    possible = functional.cuts(model)
    return [possible[index]._keras_history.operation.name for index in functional.find_cuts(model, rule)]


def test_resolution_is_the_last_cut_before_each_reduction():
    """Not the rescaled pixels, and not the padded map, which is larger than the ones before it."""
    assert names_of(residual(), "resolution") == ["block_1"]
    assert names_of(dense(), "resolution") == ["concat_2"]


@pytest.mark.parametrize("side", [64, None])
def test_resolution_of_a_known_network(side):
    """The places from which segmentation networks take the features of MobileNetV2."""
    model = keras.applications.MobileNetV2(weights=None, include_top=False, alpha=0.35, input_shape=(side, side, 3))
    assert names_of(model, "resolution") == [f"block_{number}_expand_relu" for number in (1, 3, 6, 13)]


def test_pyramid_outputs_are_translated_to_cuts_or_refused():
    class Pyramid(keras.Model):  # as KerasHub's FeaturePyramidBackbone: functional, with a dict of tensors
        pass

    def pyramid(model, names):
        backbone = Pyramid(model.inputs[0], model.outputs[0], name="pyramid")
        backbone.pyramid_outputs = {f"P{k}": model.get_layer(name).output for k, name in enumerate(names)}
        return backbone

    assert names_of(pyramid(residual(), ("stem", "block_1", "out")), "pyramid") == ["stem", "block_1"]
    with pytest.raises(InputError, match="the output of stem bypasses it"):
        functional.find_cuts(pyramid(residual(), ("inner", "block_1")), "pyramid")


# ----------------------------------------------------------------------------------------------------- branches


@pytest.mark.parametrize("name", SPLITS)
def test_branches_share_everything_but_batch_norms(name):
    make, names = SPLITS[name]
    model = perturb(make())
    expected = model(images()).numpy()
    norms = functional._norms(model)
    first, second = functional.separate_norms(model, 2)
    norm_variables = {id(v) for norm in norms for v in norm.variables}
    assert {id(v) for v in first.variables} == {id(v) for v in model.variables}
    assert {id(v) for v in first.variables} - {id(v) for v in second.variables} == norm_variables
    assert len(second.variables) == len(model.variables)
    # All branches begin alike; a step of one leaves the other.
    np.testing.assert_array_equal(second(images()), expected)
    run = chain(functional.make_stages(model, names, branches=2), training=True)
    run(images(), branch=1)
    np.testing.assert_array_equal(model(images()), expected)
    before = [norm.moving_mean.numpy() for norm in norms]
    run(images(), branch=0)
    assert all((norm.moving_mean.numpy() != old).any() for norm, old in zip(norms, before, strict=True))


def test_a_branch_computes_with_its_own_values():
    """Branch 1 equals the model after its batch norms were given the values of branch 1."""
    model = perturb(residual())
    (stage,) = functional.make_stages(model, branches=2)
    for _, second in stage.norm_branches:
        second.set_weights([value + 0.5 for value in second.get_weights()])
    output = stage(images(), branch=1)
    for first, second in stage.norm_branches:
        first.set_weights(second.get_weights())
    np.testing.assert_array_equal(output, model(images()))
    with pytest.raises(InputError, match="there is no branch 2"):
        stage(images(), branch=2)


def test_adopted_branch_replaces_branch_0_and_freezes_the_others():
    stages = functional.make_stages(perturb(residual()), ("block_1",), branches=3)
    composed = keras.Sequential([keras.Input((SIDE, SIDE, 2)), *stages])
    for stage in stages:
        for norms in stage.norm_branches:
            norms[2].set_weights([value + 0.5 for value in norms[2].get_weights()])
    run = chain(stages)
    expected = run(images(), branch=2).numpy()
    normalization.adopt_branch(composed, 2)
    np.testing.assert_array_equal(run(images()), expected)
    frozen = [v.path for v in composed.variables if v.path.endswith(("gamma", "beta")) and not v.trainable]
    assert len(frozen) == 2 * 2 * 4 and all("_branch_" in path for path in frozen)


def test_a_batch_norm_inside_another_layer_is_refused():
    inputs = keras.Input((SIDE, SIDE, 2))
    wrapped = layers.TimeDistributed(layers.BatchNormalization(), name="by_row")
    model = keras.Model(inputs, wrapped(inputs), name="wrapped")
    with pytest.raises(InputError, match="'by_row' .TimeDistributed. of wrapped holds a batch normalization"):
        functional.make_stages(model, branches=2)


def test_half_precision_crosses_the_cuts():
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = residual()
    finally:
        keras.config.set_dtype_policy("float32")
    stages = functional.make_stages(model, "resolution", branches=2)
    assert stages[0](images()).dtype == tf.bfloat16
    np.testing.assert_array_equal(tf.cast(chain(stages)(images(), branch=1), tf.float32), model(images()))
