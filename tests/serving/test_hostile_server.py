"""`query` ends with one line for any response of a server."""

import contextlib
import http.server
import json
import threading

import numpy as np
import pytest
import stored

from tfrobust.commands import query
from tfrobust.serving.client.transport import ServerUnavailable


def tensor(dtype, *sizes):
    return {"dtype": dtype, "tensor_shape": {"dim": [{"size": size} for size in sizes]}}


def metadata(inputs=None, outputs=None, version="1", report="DT_STRING", **more):
    signatures = {
        "serving_default": {
            "inputs": {"images": inputs or tensor("DT_FLOAT", -1, 2, 2, 1)},
            "outputs": {"probabilities": outputs or tensor("DT_FLOAT", -1, 3)},
        },
        "robustness_report": {
            "inputs": {"request": tensor("DT_STRING", -1)},
            "outputs": {"report": tensor(report, -1)} if report else {},
        },
    }
    return {"model_spec": {"version": version}, "metadata": {"signature_def": {"signature_def": signatures | more}}}


@contextlib.contextmanager
def served(answers):
    """A server of fixed answers: of "metadata", "status", and of each signature by its name."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.say("metadata" if self.path.endswith("/metadata") else "status")

        def do_POST(self):
            self.say(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["signature_name"])

        def say(self, key):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(answers[key]).encode())

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


SOUND_ANSWERS = stored.table(globals(), "sound_answers")
INFINITY = float("inf")
PREDICT, METADATA, REPORT = "--image=", "--metadata", "--report"


@pytest.mark.parametrize("flag, answers, message", stored.rows(globals(), "one_line"))
def test_one_line(flag, answers, message, tmp_path, capsys):
    np.save(tmp_path / "images.npy", np.zeros((2, 2, 2, 1), np.float32))
    with served(SOUND_ANSWERS | answers) as url:
        assert query.main([f"--url={url}", "--model=m", flag + (f"{tmp_path}/images.npy" if flag == PREDICT else "")])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and message in line


@pytest.mark.parametrize("way", ["table", "json"])
def test_names_that_no_terminal_shows(way, capsys):
    odd = {"a\ud800\x1b[2J": {"inputs": {"\ud800": tensor("D\ud800", 1)}, "outputs": {}}}
    state = {"model_version_status": [{"version": 1, "state": "\ud800\x9b"}, {"version": 2, "state": INFINITY}]}
    with served(SOUND_ANSWERS | {"metadata": metadata(**odd), "status": state}) as url:
        assert query.main([f"--url={url}", "--model=m", METADATA, f"--format={way}"]) == 0
    output = capsys.readouterr().out
    assert output.replace("\n", "").isprintable() and output.encode()


def test_a_tensor_over_grpc_that_claims_to_be_huge():
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2

    from tfrobust.serving.client import Client

    answer = predict_pb2.PredictResponse()
    answer.outputs["probabilities"].CopyFrom(tf.make_tensor_proto([1.0]))
    with Client("grpc://127.0.0.1:1", "m") as asked:
        rpc = asked._transport
        rpc._request = lambda *_: answer
        assert rpc.predict("serving_default", {}, {"probabilities": None})["probabilities"].tolist() == [1.0]
        answer.outputs["probabilities"].tensor_shape.dim[0].size = 2**40
        with pytest.raises(ServerUnavailable, match="too large"):
            rpc.predict("serving_default", {}, {"probabilities": None})
        answer.outputs["probabilities"].tensor_shape.dim[0].size = -5
        with pytest.raises(ServerUnavailable, match="damaged"):
            rpc.predict("serving_default", {}, {"probabilities": None})
