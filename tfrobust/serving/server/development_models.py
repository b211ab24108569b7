"""The models of the development server (NOT TensorFlow Serving), and its responses to the genuine protos."""

from __future__ import annotations

import math
import pathlib
import threading
from collections.abc import Mapping

import numpy as np

from tfrobust.serving.export import publish

NAME = "tfrobust development server, NOT TensorFlow Serving"
LARGEST_REQUEST = 64 * 2**20


class Failure(Exception):
    """A request that cannot be served: the name of a gRPC status code, and a sentence."""

    def __init__(self, code: str, message: str):
        super().__init__(message)
        self.code, self.message = code, message


class _Version:
    """One loaded version directory."""

    def __init__(self, directory: pathlib.Path):
        from tensorflow.core.protobuf import saved_model_pb2

        from tfrobust.security import saved_models

        self.loaded = saved_models.load(directory)  # kept because it owns the variables
        self.signatures = saved_models.signatures(self.loaded)
        graph = saved_model_pb2.SavedModel.FromString((directory / "saved_model.pb").read_bytes()).meta_graphs[0]
        self.signature_defs = dict(graph.signature_def)

    def run(self, name: str, inputs: Mapping):
        import tensorflow as tf

        if name not in self.signatures:
            raise Failure("FAILED_PRECONDITION", f'Serving signature key "{name}" not found.')
        wanted = set(self.signature_defs[name].inputs)
        if set(inputs) != wanted:
            extra, missing = (",".join(sorted(names)) for names in (set(inputs) - wanted, wanted - set(inputs)))
            message = f"Sent extra: {{{extra}}}. Missing but required: {{{missing}}}."
            raise Failure("INVALID_ARGUMENT", f"input size does not match signature. {message}")
        try:
            tensors = {key: tf.constant(_array(key, value)) for key, value in inputs.items()}
            return self.signatures[name](**tensors)
        except (ValueError, TypeError, LookupError, tf.errors.OpError) as error:
            raise Failure("INVALID_ARGUMENT", " ".join(str(error).split())[:500]) from None


def _array(name: str, value) -> np.ndarray:
    """Convert a TensorProto to an array; refuse non-finite values and tensors larger than a request may be."""
    import tensorflow as tf

    from tfrobust.security.program_sizes import element_size

    sizes = [axis.size for axis in value.tensor_shape.dim]
    # A TensorProto of a few bytes can stand for any number of equal values.
    if min(sizes, default=0) < 0 or math.prod(sizes) * (element_size(value.dtype) or 1) > LARGEST_REQUEST:
        raise Failure("INVALID_ARGUMENT", f"{name} has more than {LARGEST_REQUEST} bytes, or none that can be counted")
    array = tf.make_ndarray(value)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise Failure("INVALID_ARGUMENT", f"{name} holds NaN or infinity")
    return array


class Models:
    """The served models: the newest version of each, or all labeled versions, as in `recipes.models_config`.

    Args:
        folders: name -> folder with the version directories.
        labels: name -> {label: version}.
    """

    def __init__(
        self, folders: Mapping[str, str | pathlib.Path], labels: Mapping[str, Mapping[str, int]] | None = None
    ):
        self.folders = {name: pathlib.Path(folder) for name, folder in folders.items()}
        self.labels = {name: dict(of_model) for name, of_model in (labels or {}).items()}
        self._served: dict[str, dict[int, _Version]] = {name: {} for name in folders}
        self._failed: dict[str, dict[int, str]] = {name: {} for name in folders}
        self._lock = threading.Lock()

    def refresh(self) -> None:
        """Load the requested versions that are new, then release those no longer requested."""
        with self._lock:
            for name, folder in self.folders.items():
                there = publish.versions(folder)
                labelled = set(self.labels.get(name, {}).values())
                wanted = labelled & set(there) if labelled else set(there[-1:])
                served, failed = self._served[name], self._failed[name]
                loaded = {version: served[version] for version in wanted & served.keys()}
                for version in sorted(wanted - served.keys() - failed.keys()):
                    try:
                        loaded[version] = _Version(folder / str(version))
                    except Exception as error:  # a broken version must not stop the previous one
                        failed[version] = f"{type(error).__name__}: {error}"[:300]
                if loaded or not wanted:
                    self._served[name] = loaded

    def find(self, specification) -> tuple[int, _Version]:
        """Return the version that a genuine ModelSpec asks for."""
        name, served = specification.name, self._served.get(specification.name, {})
        choice = specification.WhichOneof("version_choice")
        if choice == "version_label":
            version = self.labels.get(name, {}).get(specification.version_label)
            if version is None:
                raise Failure("INVALID_ARGUMENT", f"Unrecognized servable version label: {specification.version_label}")
        else:
            version = specification.version.value if choice == "version" else max(served, default=None)
        if version not in served:
            asked = f"Latest({name})" if version is None else f"Specific({name}, {version})"
            raise Failure("NOT_FOUND", f"Servable not found for request: {asked}")
        return version, served[version]

    def states(self, specification) -> dict[int, str]:
        """Return version -> why it could not be loaded, or "" for a version that is served."""
        name = specification.name
        found = {**self._failed.get(name, {}), **{version: "" for version in self._served.get(name, {})}}
        if specification.WhichOneof("version_choice") == "version":
            found = {version: why for version, why in found.items() if version == specification.version.value}
            if not found:
                wanted = specification.version.value
                raise Failure("NOT_FOUND", f"Could not find version {wanted} of model {name}")
        if not found:
            raise Failure("NOT_FOUND", f"Could not find any versions of model {name}")
        return found


class Answers:
    """The request handlers of both interfaces: genuine request protos in, genuine response protos out."""

    def __init__(self, models: Models):
        self.models = models

    def predict(self, request):
        """Handle a PredictRequest; return a PredictResponse."""
        import tensorflow as tf
        from tensorflow_serving.apis import predict_pb2

        number, version = self.models.find(request.model_spec)
        name = request.model_spec.signature_name or "serving_default"
        outputs = version.run(name, request.inputs)
        unknown = set(request.output_filter) - set(outputs)
        if unknown:
            raise Failure("INVALID_ARGUMENT", f"output tensor alias not found in signature: {sorted(unknown)[0]}")
        response = predict_pb2.PredictResponse()
        response.model_spec.name, response.model_spec.signature_name = request.model_spec.name, name
        response.model_spec.version.value = number
        for key, value in outputs.items():
            if not request.output_filter or key in request.output_filter:
                response.outputs[key].CopyFrom(tf.make_tensor_proto(value.numpy()))
        return response

    def metadata(self, request):
        """Handle a GetModelMetadataRequest; return a GetModelMetadataResponse."""
        from tensorflow_serving.apis import get_model_metadata_pb2

        if list(request.metadata_field) != ["signature_def"]:
            raise Failure("INVALID_ARGUMENT", f"Metadata field {list(request.metadata_field)} is not supported")
        number, version = self.models.find(request.model_spec)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        for name, definition in version.signature_defs.items():
            signatures.signature_def[name].CopyFrom(definition)
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.model_spec.name, response.model_spec.version.value = request.model_spec.name, number
        response.metadata["signature_def"].Pack(signatures)
        return response

    def status(self, request):
        """Handle a GetModelStatusRequest; return a GetModelStatusResponse."""
        from tensorflow_serving.apis import get_model_status_pb2

        response = get_model_status_pb2.GetModelStatusResponse()
        state = get_model_status_pb2.ModelVersionStatus
        for number, why in sorted(self.models.states(request.model_spec).items(), reverse=True):
            entry = response.model_version_status.add(version=number, state=state.END if why else state.AVAILABLE)
            entry.status.error_code, entry.status.error_message = (13 if why else 0), why
        return response
