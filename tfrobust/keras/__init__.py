"""tfrobust for any Keras project: losses, attacks, methods, models, layers, metrics, callbacks, one-line evaluation.

    from tfrobust import keras as robust

    outcome = robust.evaluate(model, images, labels, epsilon=8 / 255)

Everything here is an ordinary Keras object or a plain function, and works without the rest of the library. All
classes are registered with Keras as soon as this package is imported, so that `.keras` files load in safe mode.
"""

from tfrobust.evaluation.summary import evaluate
from tfrobust.keras import (
    attacks,
    augment,
    callbacks,
    corruptions,
    layers,
    losses,
    methods,
    metrics,
    models,
    optimizers,
    schedules,
)
from tfrobust.saving import load as load_model
from tfrobust.saving import save as save_model

__all__ = [
    "attacks",
    "augment",
    "callbacks",
    "corruptions",
    "evaluate",
    "layers",
    "load_model",
    "losses",
    "methods",
    "metrics",
    "models",
    "optimizers",
    "save_model",
    "schedules",
]
