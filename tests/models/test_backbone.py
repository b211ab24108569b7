"""Foreign Keras models as encoders: pixels, pooling, sources, files, and what is refused."""

import os
import sys
import unittest.mock

import h5py
import keras
import numpy as np
import pytest
import stored
import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.models.backbone import Backbone
from tfrobust.models.shared import foreign
from tfrobust.security import weight_archives

GENERATOR = np.random.default_rng(0)
IMAGES = GENERATOR.random((2, 8, 8, 3), dtype=np.float32)
BYTES = GENERATOR.integers(0, 256, (2, 8, 8, 3))


def functional(outputs=lambda maps: maps, inputs=None, channels: int = 3) -> keras.Model:
    images = keras.Input((None, None, channels), name="images")
    maps = keras.layers.Conv2D(4, 3, padding="same", activation="tanh", name="maps")(images)
    return keras.Model({inputs: images} if inputs else images, outputs(maps))


def sequence(maps):
    return keras.layers.Reshape((-1, 4))(maps)


@keras.saving.register_keras_serializable(package="tests")
class SubclassedBackbone(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense = keras.layers.Dense(5)

    def call(self, images):
        return self.dense(images)

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], 5)


# ------------------------------------------------------------------------------------------------- pixels

MODES = stored.table(globals(), "modes")


def identity_backbone(pixels: foreign.PixelMap) -> Backbone:
    images = keras.Input((None, None, 3))
    model = keras.Model(images, keras.layers.Identity()(images))
    return Backbone(model, pixel_mean=pixels.mean, pixel_std=pixels.std, channel_order=pixels.order)


@pytest.mark.parametrize("name", MODES)
def test_pixels_of_applications_are_those_of_their_modules(name):
    """Against the module's own function, and against the formulas of the three modes."""
    module = sys.modules[getattr(keras.applications, name).__module__]
    backbone = identity_backbone(foreign.pixel_map(module.preprocess_input))
    mapped = backbone.standardize(tf.constant(BYTES / 255, tf.float32))
    preprocessed = module.preprocess_input(BYTES.astype(np.float64))
    np.testing.assert_allclose(mapped, preprocessed, rtol=1e-4, atol=1e-3 if np.abs(preprocessed).max() > 10 else 1e-5)
    np.testing.assert_allclose(preprocessed, MODES[name](BYTES.astype(np.float64)), rtol=1e-6, atol=1e-5)


def test_pixels_are_mapped_to_their_range_and_order_and_gray_ones_repeated():
    for low, high in ((0, 255), (-1, 1), (0, 1)):
        mapped = Backbone(functional(), pixel_range=(low, high)).standardize(tf.constant(IMAGES))
        np.testing.assert_allclose(mapped, low + (high - low) * IMAGES, rtol=1e-5, atol=1e-4)
    turned = Backbone(functional(), pixel_range=(0, 1), channel_order="bgr").standardize(tf.constant(IMAGES))
    np.testing.assert_array_equal(turned, IMAGES[..., ::-1])
    gray = IMAGES[..., :1]
    backbone = Backbone(functional(), pixel_mean=(0.1, 0.2, 0.3), pixel_std=(1.0, 2.0, 3.0))
    backbone.build((None, 8, 8, 1))
    expected = Backbone(backbone.model, pixel_mean=(0.1, 0.2, 0.3), pixel_std=(1.0, 2.0, 3.0))
    np.testing.assert_array_equal(backbone(gray), expected(np.repeat(gray, 3, axis=-1)))


@pytest.mark.parametrize("preprocess", stored.rows(globals(), "pixel_map_of_other_functions_is_unknown"))
def test_pixel_map_of_other_functions_is_unknown(preprocess):
    assert foreign.pixel_map(preprocess) is None


# ------------------------------------------------------------------------------------------------- pooling


@pytest.mark.parametrize("outputs, pooling, pooled", stored.rows(globals(), "pooling"))
def test_pooling(outputs, pooling, pooled):
    model = functional(outputs)
    maps = keras.Model(model.inputs[0], model.get_layer("maps").output)
    encoder = Backbone(model, pooling=pooling, pixel_range=(0, 1))
    np.testing.assert_allclose(encoder(IMAGES), pooled(maps(IMAGES).numpy()), rtol=1e-5, atol=1e-6)
    assert encoder.dim == 4 and encoder.stage_count == 1


def test_dicts_as_input_and_output():
    model = functional(lambda maps: {"maps": maps, "doubled": keras.layers.UpSampling2D()(maps)}, inputs="images")
    encoder = Backbone(model, output_name="maps", pixel_range=(0, 1))
    np.testing.assert_allclose(encoder(IMAGES), model({"images": IMAGES})["maps"].numpy().mean((1, 2)), rtol=1e-5)
    assert len(encoder.variables) == len(model.variables)


def test_subclassed_model_round_trip(tmp_path):
    model = SubclassedBackbone()
    model(IMAGES)
    encoder = Backbone(model, pixel_range=(-1, 1))
    np.testing.assert_allclose(encoder(IMAGES), model(2 * IMAGES - 1).numpy().mean((1, 2)), rtol=1e-5, atol=1e-6)
    encoder.save(tmp_path / "encoder.keras")
    np.testing.assert_array_equal(keras.saving.load_model(tmp_path / "encoder.keras")(IMAGES), encoder(IMAGES))


# -------------------------------------------------------------------------------------------- applications


def test_application_from_a_local_file(tmp_path):
    """The file's weights arrive, a copy in a .keras file does not need it, and other files are another origin."""
    arguments = {"alpha": 0.35}
    fresh = Backbone(application=keras.applications.MobileNetV2, arguments=arguments, resize_to=32)
    path = str(tmp_path / "mine.weights.h5")
    fresh.model.save_weights(path)
    loaded = Backbone(application="MobileNetV2", arguments=arguments | {"weights": path}, resize_to=32)
    np.testing.assert_array_equal(loaded(IMAGES), fresh(IMAGES))
    assert loaded.origin and not fresh.origin
    loaded.save(tmp_path / "encoder.keras")
    os.remove(path)
    again = keras.saving.load_model(tmp_path / "encoder.keras")
    np.testing.assert_array_equal(again(IMAGES), fresh(IMAGES))
    assert again.get_config() == loaded.get_config()


def test_momentum_and_epsilon_reach_the_layers():
    encoder = Backbone(
        application="MobileNetV2", arguments={"alpha": 0.35}, synchronized=True, normalization_momentum=0.5
    )
    norms = foreign.layers_of(encoder.model, keras.layers.BatchNormalization)
    assert len(norms) > 50 and all(norm.synchronized and norm.momentum == 0.5 for norm in norms)
    assert norms[0].epsilon == 1e-3
    assert not foreign.random_layers(encoder.model)


def test_dropout_is_found_and_stopped(tmp_path):
    """A copy in a file has none either."""
    model = functional(lambda maps: keras.layers.Dropout(0.0)(keras.layers.Dropout(0.5, name="random")(maps)))
    assert [layer.name for layer in foreign.random_layers(model)] == ["random"]
    encoder = Backbone(model, pixel_range=(0, 1))
    assert np.any(encoder(IMAGES, training=True) != encoder(IMAGES))
    still = Backbone(model, pixel_range=(0, 1), dropout=False)
    still(IMAGES)
    still.save(tmp_path / "encoder.keras")
    for network in (still, keras.saving.load_model(tmp_path / "encoder.keras")):
        assert not foreign.random_layers(network.model)
        np.testing.assert_array_equal(network(IMAGES, training=True), still(IMAGES))


@pytest.mark.rest  # two deep networks
def test_dropout_of_an_application_is_stopped():
    assert len(foreign.random_layers(Backbone(application="EfficientNetB0").model)) == 9
    assert not foreign.random_layers(Backbone(application="EfficientNetB0", dropout=False).model)


# -------------------------------------------------------------------------------------------------- refused


def test_a_fixed_size_is_asked_for():
    model = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Conv2D(4, 3)])
    with pytest.raises(InputError, match="set resize_to=8"):
        Backbone(model, pixel_range=(0, 1)).build((None, 6, 6, 3))
    assert Backbone(model, pixel_range=(0, 1), resize_to=8)(IMAGES[:, :6, :6]).shape == (2, 4)


def test_weight_files_are_checked_first(tmp_path):
    good, other = tmp_path / "good.h5", tmp_path / "other.h5"
    with h5py.File(other, "w") as file:
        file["kernel"] = np.ones(3)
    cases = {
        "is a link": lambda file: file.__setitem__("part", h5py.ExternalLink(str(other), "kernel")),
        "'soft' is a link": lambda file: file.__setitem__("soft", h5py.SoftLink("/kernel")),
        "stored in another file": lambda file: file.create_dataset("part", (3,), "f4", external=[("secret", 0, 12)]),
        "'part' holds complex numbers": lambda file: file.create_dataset("part", (3,), "c8"),
        "much larger": lambda file: file.create_dataset("part", (2**28,), "f4", chunks=(2**20,)),
    }
    for message, plant in cases.items():
        with h5py.File(good, "w") as file:
            file["group/kernel"] = np.ones(3)
            plant(file)
        with pytest.raises(InputError, match=message):
            weight_archives.check_hdf5(good)
    good.write_bytes(b"PK\x03\x04")
    with pytest.raises(InputError, match="no HDF5"):
        weight_archives.check_hdf5(good)
    good.write_bytes(other.read_bytes()[:700])
    with pytest.raises(InputError, match="cannot be read"):
        weight_archives.check_hdf5(good)


@pytest.mark.parametrize(("rate", "replicas", "lines"), [(0.5, 2, 1), (0.0, 2, 0), (0.5, 1, 0)])
def test_replicas_are_warned_of_stateful_seeds_in_one_line(monkeypatch, caplog, rate, replicas, lines):
    model = functional(lambda maps: keras.layers.Dropout(rate, name="random")(maps))
    strategy = unittest.mock.Mock(num_replicas_in_sync=replicas)
    monkeypatch.setattr(tf.distribute, "get_strategy", lambda: strategy)
    Backbone(model, pixel_range=(0, 1))
    assert len(caplog.messages) == lines and all("(random)" in line for line in caplog.messages)
