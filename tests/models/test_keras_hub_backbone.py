"""Backbones and presets of KerasHub; every preset is a tiny one that the test has saved itself."""

import json
import sys

import keras
import keras_hub
import numpy as np
import pytest
import tensorflow as tf

from conformance import backbones
from tfrobust.errors import InputError
from tfrobust.models.backbone import Backbone
from tfrobust.models.shared import foreign, trained_parts

IMAGES = np.random.default_rng(0).random((2, backbones.SIDE, backbones.SIDE, 3), dtype=np.float32)
MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
CONVERTERS = {
    "ResNetBackbone": "ResNetImageConverter",
    "ViTBackbone": "ViTImageConverter",
    "DINOV2Backbone": "DINOV2ImageConverter",
}


def save_preset(folder, name: str, backbone: Backbone, converter: bool = True):
    backbone.model.save_to_preset(str(folder))
    if converter:
        kind = getattr(keras_hub.layers, CONVERTERS[name])
        kind(scale=list(1 / 255 / STD), offset=list(-MEAN / STD)).save_to_preset(str(folder))
    return str(folder)


def pooled(name: str, model, images) -> np.ndarray:
    """The output of KerasHub's own model, pooled as its classifier does."""
    output = model({"images": images} if name == "DINOV2Backbone" else images).numpy()
    return output.mean((1, 2)) if output.ndim == 4 else output[:, 0]


@pytest.mark.parametrize("name", backbones.PRESETS)
def test_a_preset_brings_weights_pooling_and_pixels(name, tmp_path):
    fresh = backbones.make(name)
    loaded = Backbone(preset=save_preset(tmp_path / "preset", name, fresh))
    mapped = tf.constant((IMAGES - MEAN) / STD, tf.float32)
    np.testing.assert_allclose(loaded(IMAGES), pooled(name, fresh.model, mapped), rtol=1e-4, atol=1e-5)
    assert (loaded.pixel_mean, loaded.pixel_std) == (tuple(MEAN), tuple(STD)) and loaded.origin
    # The file needs no preset folder.
    loaded.save(tmp_path / "encoder.keras")
    for path in (tmp_path / "preset").iterdir():
        path.unlink()
    again = keras.saving.load_model(tmp_path / "encoder.keras")
    np.testing.assert_array_equal(again(IMAGES), loaded(IMAGES))
    assert again.get_config() == loaded.get_config()
    assert len(again.variables) == len(fresh.model.variables)


@pytest.mark.parametrize("name", backbones.PRESETS)
def test_adapters_of_a_preset_begin_without_effect_and_are_merged(name, tmp_path):
    folder = save_preset(tmp_path / "preset", name, backbones.make(name))
    plain, adapted = Backbone(preset=folder), Backbone(preset=folder, lora_rank=2)
    np.testing.assert_array_equal(adapted(IMAGES), plain(IMAGES))
    factors = trained_parts.adapters(adapted)
    assert {id(factor) for factor in factors} == {id(variable) for variable in adapted.trainable_variables}
    for variable in factors:
        variable.assign(np.random.default_rng(2).normal(size=variable.shape, scale=0.1))
    moved = adapted(IMAGES).numpy()
    assert np.abs(moved - plain(IMAGES)).max() > 1e-3
    adapted.merge_adapters()
    np.testing.assert_allclose(adapted(IMAGES), moved, rtol=1e-3, atol=1e-4)
    assert len(adapted.variables) == len(plain.variables)


def test_pixels_are_those_of_the_image_converter():
    images = np.random.default_rng(1).integers(0, 256, (3, 4, 4, 3))
    for scale, offset in ((1 / 127.5, -1.0), (1 / 255, None), (None, None), (list(1 / 255 / STD), list(-MEAN / STD))):
        converter = keras_hub.layers.ImageConverter(scale=scale, offset=offset)
        pixels = foreign.pixel_map(converter)
        mapped = (images / 255 - pixels.mean) / pixels.std
        np.testing.assert_allclose(mapped, converter(images.astype(np.float32)), rtol=1e-4, atol=1e-4)
    assert foreign.pixel_map(keras_hub.layers.ImageConverter(image_size=(9, 9), scale=1 / 255)) == foreign.PixelMap(
        0, 1
    )


def test_without_a_class_token_tokens_are_averaged():
    arguments = backbones.PRESETS["ViTBackbone"] | {"use_class_token": False}
    encoder = Backbone(preset="ViTBackbone", arguments=arguments, pixel_range=(0, 1))
    np.testing.assert_allclose(encoder(IMAGES), encoder.model(IMAGES).numpy().mean(1), rtol=1e-5, atol=1e-6)


def two_inputs() -> keras.Model:
    images, numbers = keras.Input((4, 4, 3)), keras.Input((3,))
    return keras.Model([images, numbers], images + numbers[:, None, None])


def test_refusals(tmp_path, monkeypatch):
    """One line each; a name is never taken for permission to download."""
    folder = save_preset(tmp_path / "preset", "ViTBackbone", backbones.make("ViTBackbone"), converter=False)
    (tmp_path / "empty").mkdir()
    cases = {
        "set pixel_range": {"preset": folder},
        "write 'kaggle://keras/resnet": {"preset": "resnet_18_imagenet"},
        "no folder": {"preset": str(tmp_path / "none")},
        "holds no config.json": {"preset": str(tmp_path / "empty")},
        "no backbone class": {"preset": "ImageClassifier"},
        "could not make": {"preset": "ViTBackbone", "arguments": {"patch": 3}},
        "takes a model of images": {"model": two_inputs(), "pixel_range": (0, 1)},
    }
    for message, arguments in cases.items():
        with pytest.raises(InputError, match=message) as caught:
            Backbone(**arguments)
        assert len(str(caught.value)) <= 300 and "\n" not in str(caught.value)
    fixed = Backbone(preset=folder, pixel_range=(0, 1))
    with pytest.raises(InputError, match=f"set resize_to={backbones.SIDE}"):
        fixed.build((None, 8, 8, 1))
    config = json.loads((tmp_path / "preset" / "config.json").read_text())
    for registered, message in (("mine>Evil", "no class of KerasHub"), (None, "no class of KerasHub")):
        (tmp_path / "preset" / "config.json").write_text(json.dumps(config | {"registered_name": registered}))
        with pytest.raises(InputError, match=message):
            Backbone(preset=folder)
    (tmp_path / "preset" / "config.json").write_text("[" * 10**5)
    with pytest.raises(InputError, match="no configuration"):
        Backbone(preset=folder)
    monkeypatch.setitem(sys.modules, "keras_hub", None)
    for make in (lambda: Backbone(preset=folder), lambda: Backbone.from_config(fixed.get_config())):
        with pytest.raises(InputError, match=r"pip install 'tfrobust\[keras_hub\]'"):
            make()
