"""One honest model for each layer of Keras in common use, and models of several kinds; built by `MODELS[name]()`.

Keras 3.15 cannot read its own RandomShear back, Equalization cannot be part of a model, and CutMix and MixUp take
labels.
"""

import keras
import numpy as np

L = keras.layers
VECTOR, SEQUENCE, IMAGE, CLIP, TOKENS = (8,), (6, 4), (8, 8, 3), (4, 8, 8, 2), (6,)
_PENALTIES = {"kernel_regularizer": "l2", "kernel_constraint": keras.constraints.MaxNorm(3.0)}


def _pair(layer):
    return lambda: _merged(layer())


def _merged(layer):
    images = keras.Input(VECTOR)
    return keras.Model(images, layer([L.Dense(4)(images), L.Dense(4)(images)]))


def _attention(layer):
    inputs = keras.Input(SEQUENCE)
    return keras.Model(inputs, layer(inputs, inputs))


# Name of a layer -> (shape of the input, what makes layers of it with several arguments each).
SINGLE = {
    "Activation": (VECTOR, lambda: [L.Activation(name) for name in ("relu", "gelu", "swish", "hard_sigmoid")]),
    "ActivityRegularization": (VECTOR, lambda: [L.ActivityRegularization(0.1, 0.2)]),
    "AdaptiveAveragePooling1D": (SEQUENCE, lambda: [L.AdaptiveAveragePooling1D(3)]),
    "AdaptiveAveragePooling2D": (IMAGE, lambda: [L.AdaptiveAveragePooling2D((3, 2))]),
    "AdaptiveAveragePooling3D": (CLIP, lambda: [L.AdaptiveAveragePooling3D(2)]),
    "AdaptiveMaxPooling1D": (SEQUENCE, lambda: [L.AdaptiveMaxPooling1D(3)]),
    "AdaptiveMaxPooling2D": (IMAGE, lambda: [L.AdaptiveMaxPooling2D(3)]),
    "AdaptiveMaxPooling3D": (CLIP, lambda: [L.AdaptiveMaxPooling3D(2)]),
    "AlphaDropout": (VECTOR, lambda: [L.AlphaDropout(0.1, seed=3)]),
    "AugMix": (IMAGE, lambda: [L.AugMix((0, 1))]),
    "AutoContrast": (IMAGE, lambda: [L.AutoContrast((0, 1))]),
    "AveragePooling1D": (SEQUENCE, lambda: [L.AveragePooling1D(2)]),
    "AveragePooling2D": (IMAGE, lambda: [L.AveragePooling2D(2, padding="same")]),
    "AveragePooling3D": (CLIP, lambda: [L.AveragePooling3D(2)]),
    "BatchNormalization": (IMAGE, lambda: [L.BatchNormalization(momentum=0.9, gamma_regularizer="l1")]),
    "Bidirectional": (
        SEQUENCE,
        lambda: [L.Bidirectional(L.LSTM(3, return_sequences=True)), L.Bidirectional(L.GRU(2), merge_mode="sum")],
    ),
    "CategoryEncoding": (TOKENS, lambda: [L.CategoryEncoding(5, output_mode="count")]),
    "CenterCrop": (IMAGE, lambda: [L.CenterCrop(4, 4)]),
    "ContrastLimitedAdaptiveHistogramEqualization": (
        IMAGE,
        lambda: [L.ContrastLimitedAdaptiveHistogramEqualization((0, 1))],
    ),
    "Conv1D": (SEQUENCE, lambda: [L.Conv1D(3, 2, padding="causal", activation="relu")]),
    "Conv1DTranspose": (SEQUENCE, lambda: [L.Conv1DTranspose(3, 2)]),
    "Conv2D": (
        IMAGE,
        lambda: [L.Conv2D(3, 3, strides=2, padding="same", activation=keras.activations.relu6, **_PENALTIES)],
    ),
    "Conv2DTranspose": (IMAGE, lambda: [L.Conv2DTranspose(3, 2, strides=2)]),
    "Conv3D": (CLIP, lambda: [L.Conv3D(3, 2)]),
    "Conv3DTranspose": (CLIP, lambda: [L.Conv3DTranspose(3, 2)]),
    "ConvLSTM1D": ((3, 8, 2), lambda: [L.ConvLSTM1D(2, 2)]),
    "ConvLSTM2D": (CLIP, lambda: [L.ConvLSTM2D(2, 2)]),
    "ConvLSTM3D": ((3, 4, 4, 4, 1), lambda: [L.ConvLSTM3D(2, 2)]),
    "Cropping1D": (SEQUENCE, lambda: [L.Cropping1D(1)]),
    "Cropping2D": (IMAGE, lambda: [L.Cropping2D(((1, 0), (0, 1)))]),
    "Cropping3D": (CLIP, lambda: [L.Cropping3D(1)]),
    "Dense": (
        VECTOR,
        lambda: [
            L.Dense(4, kernel_initializer=keras.initializers.HeNormal(seed=1), bias_initializer="ones"),
            L.Dense(4, kernel_regularizer=keras.regularizers.L1L2(0.1, 0.2), bias_constraint="non_neg"),
            L.Dense(4, activation=L.LeakyReLU(negative_slope=0.2), kernel_initializer="orthogonal"),
        ],
    ),
    "DepthwiseConv1D": (SEQUENCE, lambda: [L.DepthwiseConv1D(2)]),
    "DepthwiseConv2D": (IMAGE, lambda: [L.DepthwiseConv2D(2, depthwise_initializer="he_normal")]),
    "Discretization": (VECTOR, lambda: [L.Discretization(bin_boundaries=[0.0, 0.5])]),
    "Dropout": (VECTOR, lambda: [L.Dropout(0.5, noise_shape=(None, 8))]),
    "ELU": (VECTOR, lambda: [L.ELU(0.5)]),
    "EinsumDense": (SEQUENCE, lambda: [L.EinsumDense("abc,cd->abd", output_shape=(None, 5), bias_axes="d")]),
    "Embedding": (TOKENS, lambda: [L.Embedding(10, 4, mask_zero=True)]),
    "Flatten": (IMAGE, lambda: [L.Flatten()]),
    "GRU": (SEQUENCE, lambda: [L.GRU(3, return_sequences=True), L.GRU(3, reset_after=False)]),
    "GaussianDropout": (VECTOR, lambda: [L.GaussianDropout(0.1)]),
    "GaussianNoise": (VECTOR, lambda: [L.GaussianNoise(0.1)]),
    "GlobalAveragePooling1D": (SEQUENCE, lambda: [L.GlobalAveragePooling1D()]),
    "GlobalAveragePooling2D": (IMAGE, lambda: [L.GlobalAveragePooling2D(keepdims=True)]),
    "GlobalAveragePooling3D": (CLIP, lambda: [L.GlobalAveragePooling3D()]),
    "GlobalMaxPooling1D": (SEQUENCE, lambda: [L.GlobalMaxPooling1D()]),
    "GlobalMaxPooling2D": (IMAGE, lambda: [L.GlobalMaxPooling2D()]),
    "GlobalMaxPooling3D": (CLIP, lambda: [L.GlobalMaxPooling3D()]),
    "GroupNormalization": (IMAGE, lambda: [L.GroupNormalization(3)]),
    "Identity": (VECTOR, lambda: [L.Identity()]),
    "LSTM": (SEQUENCE, lambda: [L.LSTM(3, return_sequences=True, dropout=0.1), L.LSTM(3)]),
    "LayerNormalization": (VECTOR, lambda: [L.LayerNormalization(epsilon=1e-5)]),
    "LeakyReLU": (VECTOR, lambda: [L.LeakyReLU()]),
    "Masking": (SEQUENCE, lambda: [L.Masking(), L.LSTM(2)]),
    "MaxPooling1D": (SEQUENCE, lambda: [L.MaxPooling1D(2)]),
    "MaxPooling2D": (IMAGE, lambda: [L.MaxPooling2D(2)]),
    "MaxPooling3D": (CLIP, lambda: [L.MaxPooling3D(2)]),
    "MelSpectrogram": ((512,), lambda: [L.MelSpectrogram(fft_length=64, sequence_stride=32, num_mel_bins=8)]),
    "Normalization": (IMAGE, lambda: [L.Normalization(mean=[0.1, 0.2, 0.3], variance=[1.0, 2.0, 3.0])]),
    "PReLU": (VECTOR, lambda: [L.PReLU()]),
    "Permute": (IMAGE, lambda: [L.Permute((3, 1, 2))]),
    "Pipeline": (IMAGE, lambda: [L.Pipeline([L.RandomFlip("horizontal"), L.Rescaling(2.0)])]),
    "RMSNormalization": (VECTOR, lambda: [L.RMSNormalization()]),
    "RNN": (SEQUENCE, lambda: [L.RNN([L.LSTMCell(3), L.GRUCell(2)]), L.Dense(2)]),
    "RandAugment": (IMAGE, lambda: [L.RandAugment((0, 1))]),
    "RandomBrightness": (IMAGE, lambda: [L.RandomBrightness(0.1, (0, 1))]),
    "RandomColorDegeneration": (IMAGE, lambda: [L.RandomColorDegeneration(0.1, (0, 1))]),
    "RandomColorJitter": (IMAGE, lambda: [L.RandomColorJitter((0, 1), 0.1, 0.1, 0.1, 0.1)]),
    "RandomContrast": (IMAGE, lambda: [L.RandomContrast(0.1)]),
    "RandomCrop": (IMAGE, lambda: [L.RandomCrop(4, 4)]),
    "RandomElasticTransform": (IMAGE, lambda: [L.RandomElasticTransform(value_range=(0, 1))]),
    "RandomErasing": (IMAGE, lambda: [L.RandomErasing(value_range=(0, 1))]),
    "RandomFlip": (IMAGE, lambda: [L.RandomFlip("horizontal", seed=1)]),
    "RandomGaussianBlur": (IMAGE, lambda: [L.RandomGaussianBlur(value_range=(0, 1))]),
    "RandomGrayscale": (IMAGE, lambda: [L.RandomGrayscale()]),
    "RandomHue": (IMAGE, lambda: [L.RandomHue(0.1, (0, 1))]),
    "RandomInvert": (IMAGE, lambda: [L.RandomInvert(value_range=(0, 1))]),
    "RandomPerspective": (IMAGE, lambda: [L.RandomPerspective()]),
    "RandomPosterization": (IMAGE, lambda: [L.RandomPosterization(3, (0, 1))]),
    "RandomRotation": (IMAGE, lambda: [L.RandomRotation(0.1, fill_mode="nearest")]),
    "RandomSaturation": (IMAGE, lambda: [L.RandomSaturation(0.1, (0, 1))]),
    "RandomSharpness": (IMAGE, lambda: [L.RandomSharpness(0.1, (0, 1))]),
    "RandomTranslation": (IMAGE, lambda: [L.RandomTranslation(0.1, 0.1)]),
    "RandomZoom": (IMAGE, lambda: [L.RandomZoom(0.1)]),
    "ReLU": (VECTOR, lambda: [L.ReLU(max_value=6.0)]),
    "RepeatVector": (VECTOR, lambda: [L.RepeatVector(3)]),
    "Rescaling": (IMAGE, lambda: [L.Rescaling(1 / 255, offset=-1.0), L.Rescaling([1.0, 2.0, 3.0])]),
    "Reshape": (IMAGE, lambda: [L.Reshape((-1, 3))]),
    "Resizing": (IMAGE, lambda: [L.Resizing(4, 4, interpolation="bicubic", crop_to_aspect_ratio=True)]),
    "ReversibleEmbedding": (TOKENS, lambda: [L.ReversibleEmbedding(10, 4)]),
    "STFTSpectrogram": (
        (256, 1),
        lambda: [L.STFTSpectrogram(mode="log", frame_length=32, frame_step=16, fft_length=32)],
    ),
    "SeparableConv1D": (SEQUENCE, lambda: [L.SeparableConv1D(3, 2)]),
    "SeparableConv2D": (IMAGE, lambda: [L.SeparableConv2D(3, 2, pointwise_regularizer="l2")]),
    "SimpleRNN": (SEQUENCE, lambda: [L.SimpleRNN(3)]),
    "Softmax": (VECTOR, lambda: [L.Softmax()]),
    "Solarization": (IMAGE, lambda: [L.Solarization(value_range=(0, 1))]),
    "SpatialDropout1D": (SEQUENCE, lambda: [L.SpatialDropout1D(0.1)]),
    "SpatialDropout2D": (IMAGE, lambda: [L.SpatialDropout2D(0.1)]),
    "SpatialDropout3D": (CLIP, lambda: [L.SpatialDropout3D(0.1)]),
    "SpectralNormalization": (VECTOR, lambda: [L.SpectralNormalization(L.Dense(4))]),
    "StackedRNNCells": (SEQUENCE, lambda: [L.RNN(L.StackedRNNCells([L.SimpleRNNCell(3)]))]),
    "TimeDistributed": (SEQUENCE, lambda: [L.TimeDistributed(L.Dense(2))]),
    "UnitNormalization": (VECTOR, lambda: [L.UnitNormalization()]),
    "UpSampling1D": (SEQUENCE, lambda: [L.UpSampling1D(2)]),
    "UpSampling2D": (IMAGE, lambda: [L.UpSampling2D(2, interpolation="bilinear")]),
    "UpSampling3D": (CLIP, lambda: [L.UpSampling3D(2)]),
    "ZeroPadding1D": (SEQUENCE, lambda: [L.ZeroPadding1D(1)]),
    "ZeroPadding2D": (IMAGE, lambda: [L.ZeroPadding2D(((1, 0), (0, 1)))]),
    "ZeroPadding3D": (CLIP, lambda: [L.ZeroPadding3D(1)]),
}
# Layers of several inputs.
JOINT = {
    **{name: _pair(getattr(L, name)) for name in ("Add", "Average", "Concatenate", "Maximum", "Minimum", "Multiply")},
    "Subtract": _pair(L.Subtract),
    "Dot": lambda: _merged(L.Dot(axes=1, normalize=True)),
    "Attention": lambda: _attention(lambda *inputs: L.Attention(use_scale=True, score_mode="concat")(list(inputs))),
    "AdditiveAttention": lambda: _attention(lambda *inputs: L.AdditiveAttention()(list(inputs))),
    "MultiHeadAttention": lambda: _attention(
        lambda query, value: L.MultiHeadAttention(2, 3, dropout=0.1)(query, value, use_causal_mask=True)
    ),
    "GroupQueryAttention": lambda: _attention(L.GroupQueryAttention(4, 4, 2)),
}


def _single(name):
    shape, layers = SINGLE[name]
    return lambda: keras.Sequential([keras.Input(shape, dtype="int32" if shape == TOKENS else None), *layers()])


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


COMPLETE = {
    "operations": _operations,
    "nested": _nested,
    "adam": _compiled(keras.optimizers.Adam),
    "decayed": _compiled(_decayed, keras.losses.SparseCategoricalCrossentropy(from_logits=True)),
    "sgd": _compiled(
        lambda: keras.optimizers.SGD(0.1, momentum=0.9),
        keras.losses.CategoricalCrossentropy(label_smoothing=0.1),
        (keras.metrics.TopKCategoricalAccuracy(2), keras.metrics.AUC()),
    ),
    "loss_scale": _compiled(lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.RMSprop())),
    "mixed_float16": _precise("mixed_float16"),
    "mixed_bfloat16": _precise(keras.DTypePolicy("mixed_bfloat16")),
    "int8": _quantized("int8"),
    "int4": _quantized("int4"),
    "float8": _quantized("float8"),
    "low_rank": _low_rank,
}

MODELS = {**{name: _single(name) for name in SINGLE}, **JOINT, **COMPLETE}
