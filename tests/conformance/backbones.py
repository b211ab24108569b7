"""The foreign backbones that methods are tested with: five of keras.applications and three of KerasHub.

All have random weights. Those of keras.applications see the 8x8 gray digits of the method battery as 32x32 in color,
and the tiny ones of KerasHub as 16x16.
"""

import keras
import stored

from tfrobust.models.backbone import Backbone

APPLICATIONS = {
    "MobileNetV2": {"alpha": 0.35},
    "EfficientNetB0": {},
    "ConvNeXtTiny": {},
    "ResNet50V2": {},
    "DenseNet121": {},
}
SIDE = 16
_IMAGES = {"image_shape": (SIDE, SIDE, 3)}
PRESETS = stored.table(globals(), "presets")
NAMES = (*APPLICATIONS, *PRESETS)


def make(name: str, **arguments) -> Backbone:
    """Return a backbone with random weights."""
    if name in PRESETS and "pixel_mean" not in arguments:
        arguments["pixel_range"] = (-1, 1)
    if name in APPLICATIONS:
        return Backbone(application=name, arguments=APPLICATIONS[name], resize_to=32, dropout=False, **arguments)
    return Backbone(preset=name, arguments=PRESETS[name], resize_to=SIDE, **arguments)


def functional(channels: int = 1, **arguments) -> Backbone:
    """Return the smallest functional model with batch norm and a side path, as a user would pass it; it is smooth."""
    images = keras.Input((None, None, channels))
    options = {"padding": "same", "use_bias": False}
    hidden = keras.layers.Conv2D(4, 3, **options)(images)
    hidden = keras.layers.Activation("softplus")(keras.layers.BatchNormalization(momentum=0.9)(hidden))
    path = keras.layers.BatchNormalization(momentum=0.9)(keras.layers.Conv2D(4, 3, **options)(hidden))
    maps = keras.layers.Activation("softplus")(keras.layers.Add()([hidden, path]))
    return Backbone(keras.Model(images, keras.layers.AveragePooling2D(2)(maps)), pixel_range=(-1, 1), **arguments)
