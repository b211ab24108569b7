"""TensorFlow Serving's gRPC interface, with the stubs of tensorflow-serving-api, which import TensorFlow."""

from __future__ import annotations

import math
import urllib.parse

import grpc
import numpy as np

from tfrobust.serving.client.transport import LARGEST_RESPONSE, ServerUnavailable, TensorSpecification, plain, refused

# Status codes of requests that can never succeed; any other failure is the server's.
_REFUSED = {"NOT_FOUND", "INVALID_ARGUMENT", "FAILED_PRECONDITION", "OUT_OF_RANGE", "UNIMPLEMENTED"}
_MOST_VALUES = LARGEST_RESPONSE // 4


class Rpc:
    """One model of a server, over gRPC.

    Args:
        address: `grpc(s)://host:port`, as urllib splits it, with a port.
        model: its name.
        choice: ("version", 3), ("label", "stable"), or None for the server's newest.
        timeout: seconds for one response.
        authority: file of certificates, one of which must have signed a grpcs server's; None for gRPC's own.
    """

    def __init__(self, address: urllib.parse.SplitResult, model: str, choice, timeout: float, authority: str | None):
        from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc

        self.address, self.model, self.choice, self.timeout = address, model, choice, timeout
        name = address.hostname or ""
        host = f"[{name}]" if ":" in name else name
        limits = [("grpc.max_receive_message_length", LARGEST_RESPONSE), ("grpc.max_send_message_length", -1)]
        if address.scheme == "grpcs":
            self.channel = grpc.secure_channel(f"{host}:{address.port}", _credentials(authority), options=limits)
        else:
            self.channel = grpc.insecure_channel(f"{host}:{address.port}", options=limits)
        self.prediction = prediction_service_pb2_grpc.PredictionServiceStub(self.channel)
        self.models = model_service_pb2_grpc.ModelServiceStub(self.channel)

    def status(self) -> list[dict]:
        """Return the versions on the server: {"version", "state", "status"} each, as in REST."""
        from google.protobuf import json_format
        from tensorflow_serving.apis import get_model_status_pb2

        request = get_model_status_pb2.GetModelStatusRequest()
        self._fill(request.model_spec)
        response = json_format.MessageToDict(
            self._request(self.models.GetModelStatus, request), always_print_fields_with_no_presence=True
        )
        return response["model_version_status"]

    def metadata(self) -> dict:
        """Return the server's metadata response, in the form of REST."""
        from google.protobuf import json_format
        from tensorflow_serving.apis import get_model_metadata_pb2

        request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
        self._fill(request.model_spec)
        response = self._request(self.prediction.GetModelMetadata, request)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        response.metadata["signature_def"].Unpack(signatures)
        return {
            "model_spec": json_format.MessageToDict(response.model_spec, preserving_proto_field_name=True),
            "metadata": {"signature_def": json_format.MessageToDict(signatures, preserving_proto_field_name=True)},
        }

    def predict(self, signature: str, inputs: dict, outputs: dict[str, TensorSpecification]) -> dict[str, np.ndarray]:
        """Run one signature: arrays, or lists of bytes, by name -> arrays by name."""
        import tensorflow as tf
        from tensorflow_serving.apis import predict_pb2

        request = predict_pb2.PredictRequest()
        self._fill(request.model_spec)
        request.model_spec.signature_name = signature
        for name, value in inputs.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
        tensors = self._request(self.prediction.Predict, request).outputs
        if set(tensors) != set(outputs):
            raise ServerUnavailable(f"The response of {self._name()} lacks {sorted(set(outputs) - set(tensors))}.")
        # A TensorProto of a few bytes can stand for any number of equal values.
        shapes = [value.tensor_shape.dim for value in tensors.values()]
        if sum(math.prod(abs(axis.size) for axis in shape) for shape in shapes) > _MOST_VALUES:
            raise ServerUnavailable(
                f"The tensors in the response of {self._name()} are too large: more than {_MOST_VALUES} values."
            )
        try:
            return {name: tf.make_ndarray(value) for name, value in tensors.items()}
        except (ValueError, TypeError, LookupError, RuntimeError) as error:
            raise ServerUnavailable(f"The response of {self._name()} has a damaged tensor: {plain(error)}") from None

    def close(self) -> None:
        """Close the connection."""
        self.channel.close()

    def _fill(self, specification) -> None:
        specification.name = self.model
        if self.choice is not None and self.choice[0] == "version":
            specification.version.value = self.choice[1]
        elif self.choice is not None:
            specification.version_label = self.choice[1]

    def _request(self, method, request):
        try:
            return method(request, timeout=self.timeout)
        except grpc.RpcError as error:
            code, details = error.code().name, plain(error.details())
        if code in _REFUSED:
            raise refused(self.model, details)
        if code == "DEADLINE_EXCEEDED":
            raise ServerUnavailable(f"{self._name()} does not respond within {self.timeout:g} s.")
        raise ServerUnavailable(f"{self._name()} cannot be reached, or fails: {code}: {details}")

    def _name(self) -> str:
        return f"{self.address.scheme}://{self.address.netloc}"


def _credentials(authority: str | None) -> grpc.ChannelCredentials:
    if authority is None:
        return grpc.ssl_channel_credentials()
    with open(authority, "rb") as file:
        return grpc.ssl_channel_credentials(root_certificates=file.read())
