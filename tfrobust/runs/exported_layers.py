"""The layers of an export, made again from its report and its variables, because bounds have to pass them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import keras
import numpy as np

from tfrobust import saving
from tfrobust.certification.network import Network, NoBoundsError, walk
from tfrobust.errors import InputError
from tfrobust.evaluation.engine.outputs import first_line
from tfrobust.evaluation.engine.predictor import Predictor
from tfrobust.report.schema import Report
from tfrobust.security import keras_config, keras_files, keras_names

# Bytes of variables that layers keep beside those of the model, such as those of random numbers.
_FURTHER = 2**20


def with_layers(predictor: Predictor, report: Report | None) -> Predictor:
    """Return a SavedModel's predictor with the network of the encoder and head that its report describes.

    A report may be wrong about its model: users compare the outputs of the network with those of the model.

    Args:
        predictor: of a model file.
        report: inside the export; None for a model from elsewhere.

    Returns:
        The predictor; without a network it says why.
    """
    method = report.training.get("configuration", {}).get("method") if report else None
    if predictor.variables is None or not method:
        return predictor
    try:
        network = _network(method["config"], predictor.image_shape, predictor.variables())
    except NoBoundsError as error:
        return dataclasses.replace(predictor, no_network=str(error))
    except Exception as error:  # noqa: BLE001 - layers raise anything on what a damaged report says, or another release
        reason = f"the layers that its report describes cannot be made again ({first_line(error)})"
        return dataclasses.replace(predictor, no_network=reason)
    return dataclasses.replace(predictor, network=network, no_network="")


def _network(config: dict, image_shape: Sequence[int | None], values: list[np.ndarray]) -> Network:
    saving.import_all()  # registers the classes that the report may name
    descriptions = [_complete(config[part]) for part in ("encoder", "head")]
    for description in descriptions:
        keras_config.check(description, largest_size=sum(value.size for value in values))
    with keras_files.weights_within(sum(value.nbytes for value in values) + _FURTHER):
        parts = [keras.saving.deserialize_keras_object(description) for description in descriptions]
        model = keras.Sequential([keras.Input(tuple(image_shape)), *parts])
    variables = list({id(variable): variable for part in parts for variable in part.variables}.values())
    if [tuple(variable.shape) for variable in variables] != [value.shape for value in values]:
        raise InputError("its variables have other shapes")
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
    return walk(model)


def _complete(description):
    """Return a description with the modules and registered names that reports leave out."""
    if isinstance(description, list):
        return [_complete(item) for item in description]
    if not isinstance(description, dict):
        return description
    complete = {key: _complete(item) for key, item in description.items()}
    name = description.get("class_name")
    if isinstance(name, str) and "config" in description:
        registered = f"tfrobust>{name}"
        if keras.saving.get_registered_object(registered) is not None:
            return complete | {"module": None, "registered_name": registered}
        modules = [module for module, (_, names) in keras_names.CLASSES.items() if name in names]
        module = "keras" if name in keras_names.POLICIES_OF_KERAS else next(iter(modules), None)
        complete |= {"module": module, "registered_name": None}
    return complete
