"""One honest model for each layer of Keras in common use, and models of several kinds; built by `MODELS[name]()`.

Keras 3.15 cannot read its own RandomShear back, Equalization cannot be part of a model, and CutMix and MixUp take
labels.
"""

import pathlib
import tomllib

import keras
import numpy as np
import stored

L = keras.layers
VECTOR, SEQUENCE, IMAGE, CLIP = (8,), (6, 4), (8, 8, 3), (4, 8, 8, 2)
INPUTS = {"VECTOR": VECTOR, "SEQUENCE": SEQUENCE, "IMAGE": IMAGE, "CLIP": CLIP, "TOKENS": (6,)}
INPUTS |= {"LINES": (3, 8, 2), "SOLIDS": (3, 4, 4, 4, 1), "SOUND": (512,), "WAVE": (256, 1)}
_PENALTIES = {"kernel_regularizer": "l2", "kernel_constraint": keras.constraints.MaxNorm(3.0)}


def _pair(layer):
    return lambda: _merged(layer())


def _merged(layer):
    images = keras.Input(VECTOR)
    return keras.Model(images, layer([L.Dense(4)(images), L.Dense(4)(images)]))


def _attention(layer):
    inputs = keras.Input(SEQUENCE)
    return keras.Model(inputs, layer(inputs, inputs))


# Name of a layer -> the name of its input, and calls that make layers of it with several arguments each.
SINGLE = tomllib.loads(pathlib.Path(__file__).with_suffix(".toml").read_text("utf-8"))
# Layers of several inputs.
JOINT = {
    **{name: _pair(getattr(L, name)) for name in ("Add", "Average", "Concatenate", "Maximum", "Minimum", "Multiply")}
} | stored.table(globals(), "joint_layers")


def _single(name):
    def build():
        (shape, *calls), names = SINGLE[name], {"L": L, "keras": keras, "_PENALTIES": _PENALTIES}
        inputs = keras.Input(INPUTS[shape], dtype="int32" if shape == "TOKENS" else None)
        return keras.Sequential([inputs, *(eval(call, names) for call in calls)])

    return build


def _operations():
    images = keras.Input(IMAGE)
    hidden = (images - np.array([0.4, 0.5, 0.6], np.float32)) / 2.0 + 1
    hidden = keras.ops.concatenate([hidden[:, ::2, 1:], keras.ops.relu(images)[:, :4, :7]], axis=-1)
    hidden = keras.ops.pad(hidden, [[0, 0], [1, 1], [0, 0], [0, 0]], mode="reflect")
    hidden = keras.ops.image.resize(hidden, (4, 4), interpolation="nearest")
    hidden = keras.ops.einsum("bhwc,bhwd->bcd", hidden, keras.ops.square(hidden))
    hidden = keras.ops.softmax(keras.ops.transpose(hidden, (0, 2, 1)), axis=-1)
    hidden = keras.ops.where(hidden > 0.1, keras.ops.sqrt(hidden), keras.ops.clip(hidden, 0.0, 1.0))
    hidden = keras.ops.cast(keras.ops.mean(hidden, axis=(1, 2), keepdims=False), "float32")
    hidden = keras.ops.expand_dims(hidden, -1)
    return keras.Model(images, {"logits": L.Dense(3)(hidden), "second": keras.ops.max(hidden, axis=-1)})


def _nested():
    inner = keras.Sequential([keras.Input(IMAGE), L.Conv2D(3, 3, padding="same"), L.BatchNormalization()])
    images, more = keras.Input(IMAGE, name="images"), keras.Input(IMAGE, name="more")
    middle = keras.Model([images, more], [inner(images), inner(more)])
    first, second = keras.Input(IMAGE, name="first"), keras.Input(IMAGE, name="second")
    merged = L.Add()(middle([first, second]))
    return keras.Model({"first": first, "second": second}, L.Dense(2)(L.GlobalAveragePooling2D()(merged)))


def _compiled(optimizer, loss="sparse_categorical_crossentropy", metrics=("accuracy",)):
    def build():
        model = keras.Sequential([keras.Input(VECTOR), L.Dense(3, activation="softmax")])
        model.compile(optimizer(), loss=loss, metrics=list(metrics))
        return model

    return build


def _decayed():
    schedule = keras.optimizers.schedules.CosineDecay(0.1, 100, warmup_target=0.2, warmup_steps=10)
    return keras.optimizers.AdamW(schedule, clipnorm=1.0, use_ema=True)


def _precise(policy):
    return lambda: keras.Sequential([keras.Input(IMAGE), L.Conv2D(2, 3, dtype=policy), L.Flatten(), L.Dense(2)])


def _quantized(mode):
    def build():
        model = keras.Sequential([keras.Input((64,)), L.Dense(64), L.Dense(8, activation="relu")])
        model.quantize(mode)
        return model

    return build


def _low_rank():
    model = keras.Sequential([keras.Input(VECTOR), L.Dense(8)])
    model.layers[0].enable_lora(2)
    return model


COMPLETE = stored.table(globals(), "complete_models")

MODELS = {**{name: _single(name) for name in SINGLE}, **JOINT, **COMPLETE}
