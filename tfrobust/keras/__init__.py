"""tfrobust for any Keras project: attacks, losses, methods, models, layers, callbacks, data, one-line evaluation.

    from tfrobust import keras as robust

    outcome = robust.evaluate(model, images, labels, epsilon=8 / 255)

All objects are ordinary Keras objects or plain functions, and can be used without the rest of the library. Importing
this package registers all classes with Keras, so that `.keras` files load in safe mode.
"""

from tfrobust.evaluation.own_gradient import with_gradient
from tfrobust.evaluation.summary import evaluate
from tfrobust.keras import (
    attacks,
    augment,
    callbacks,
    certification,
    corruptions,
    data,
    evaluators,
    layers,
    losses,
    methods,
    metrics,
    models,
    optimizers,
    schedules,
    selections,
)
from tfrobust.saving import load as load_model
from tfrobust.saving import save as save_model

__all__ = [
    "attacks",
    "augment",
    "callbacks",
    "certification",
    "corruptions",
    "data",
    "evaluate",
    "evaluators",
    "layers",
    "load_model",
    "losses",
    "methods",
    "metrics",
    "models",
    "optimizers",
    "save_model",
    "schedules",
    "selections",
    "with_gradient",
]
