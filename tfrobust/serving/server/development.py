"""A small substitute for TensorFlow Serving, to test an export without Docker. It is NOT TensorFlow Serving.

It handles the same requests over REST and gRPC, built from the genuine protos, on this machine only. It has no
batching, no monitoring, no warm-up and no TLS, and its performance has not been measured. Do not use it in production.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading

from tfrobust.serving.server import development_rest
from tfrobust.serving.server.development_models import LARGEST_REQUEST, NAME, Answers, Failure, Models

__all__ = ["LARGEST_REQUEST", "NAME", "Answers", "Failure", "Models", "Server", "grpc_server"]


class Server:
    """A context manager that serves models over REST and gRPC on the loopback interface.

        with Server({"ascl_leaked": "exported/ascl_leaked"}, rest_port=0, grpc_port=0) as server:
            Client(server.rest_url, "ascl_leaked").predict(images)

    Args:
        folders: see `Models`.
        labels: see `Models`.
        rest_port: port for REST; 0 takes a free one.
        grpc_port: port for gRPC; 0 takes a free one.
        poll_seconds: interval in seconds between searches for new versions; 0 searches only at the start.

    Raises:
        InputError: the package waitress is missing.
        OSError: a port is taken.
    """

    def __init__(self, folders, labels=None, *, rest_port: int = 8501, grpc_port: int = 8500, poll_seconds: float = 1):
        self.models = Models(folders, labels)
        answers = Answers(self.models)
        self.http = development_rest.HttpServer(answers, ("127.0.0.1", rest_port))
        self.rpc = grpc_server(answers)
        try:
            grpc_port = self.rpc.add_insecure_port(f"127.0.0.1:{grpc_port}")
        except RuntimeError as error:
            self.http.server_close()
            raise OSError(f"gRPC cannot listen on port {grpc_port}: {error}") from None
        self.rest_url = f"http://127.0.0.1:{self.http.server_address[1]}"
        self.grpc_url = f"grpc://127.0.0.1:{grpc_port}"
        self._poll_seconds, self._closed = poll_seconds, threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Server:
        self.models.refresh()
        work = [self.http.serve_forever, *([self._poll] if self._poll_seconds else [])]
        self._threads = [threading.Thread(target=target, daemon=True) for target in work]
        for thread in self._threads:
            thread.start()
        self.rpc.start()
        return self

    def __exit__(self, *_) -> None:
        self._closed.set()
        self.http.shutdown()
        self.http.server_close()
        self.rpc.stop(grace=None).wait()
        for thread in self._threads:
            thread.join()

    def _poll(self) -> None:
        while not self._closed.wait(self._poll_seconds):
            with contextlib.suppress(OSError):
                self.models.refresh()


def grpc_server(answers: Answers):
    """Create a gRPC server with the genuine PredictionService and ModelService, not yet bound to a port."""
    import grpc
    from tensorflow_serving.apis import model_service_pb2_grpc as model_service
    from tensorflow_serving.apis import prediction_service_pb2_grpc as prediction_service

    def answered(answer):
        def method(self, request, context):
            try:
                return answer(request)
            except Failure as failure:
                context.abort(grpc.StatusCode[failure.code], failure.message)

        return method

    prediction = {"Predict": answered(answers.predict), "GetModelMetadata": answered(answers.metadata)}
    status = {"GetModelStatus": answered(answers.status)}
    limits = [("grpc.max_receive_message_length", LARGEST_REQUEST), ("grpc.max_send_message_length", -1)]
    # With port reuse two servers could listen on one port, and half of the requests would go to the other.
    limits.append(("grpc.so_reuseport", 0))
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4), options=limits)
    prediction_service.add_PredictionServiceServicer_to_server(
        type("Prediction", (prediction_service.PredictionServiceServicer,), prediction)(), server
    )
    model_service.add_ModelServiceServicer_to_server(
        type("Model", (model_service.ModelServiceServicer,), status)(), server
    )
    return server
