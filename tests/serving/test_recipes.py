"""The files for TensorFlow Serving, parsed with the server's own definitions."""

import contextlib
import pathlib
import shutil
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format, wrappers_pb2
from tensorflow.core.protobuf import config_pb2, named_tensor_pb2
from tensorflow_serving.config import model_server_config_pb2

from tfrobust.serving.client import Client
from tfrobust.serving.export import golden, probe
from tfrobust.serving.server import recipes

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "serving_protos.binpb"


@pytest.fixture(scope="module")
def genuine():
    """Messages that no package has, from the recorded definitions (tools/golden/record_serving_protos.py), by name."""
    assert wrappers_pb2.DESCRIPTOR and config_pb2.DESCRIPTOR and named_tensor_pb2.DESCRIPTOR  # they import these
    pool = descriptor_pool.Default()
    for file in descriptor_pb2.FileDescriptorSet.FromString(GOLDEN.read_bytes()).file:
        pool.AddSerializedFile(file.SerializeToString())

    def parse(name, text):
        kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"tensorflow.serving.{name}"))
        return text_format.Parse(text, kind())

    return parse


def parsed_models(*arguments):
    parsed = text_format.Parse(recipes.models_config(*arguments), model_server_config_pb2.ModelServerConfig())
    return list(parsed.model_config_list.config)


def test_versions_and_paths_are_those_of_the_model_server():
    first, second = parsed_models({"plain": "/models/plain", "x.y-z": "/m"}, {"x.y-z": {"stable": 3, "canary": 12}})
    assert (first.name, first.base_path, first.model_platform) == ("plain", "/models/plain", "tensorflow")
    assert first.model_version_policy.latest.num_versions == 1 and not first.version_labels
    assert list(second.model_version_policy.specific.versions) == [3, 12]
    assert dict(second.version_labels) == {"stable": 3, "canary": 12}
    (only,) = parsed_models({"m": 'a "b" \\ c'})
    assert only.base_path == 'a "b" \\ c'


def test_batching_parameters_are_the_servers(genuine):
    parsed = genuine("BatchingParameters", recipes.batching_parameters(largest_request=64, batch=16, threads=2))
    assert (parsed.max_batch_size.value, parsed.max_execution_batch_size.value) == (64, 16)
    assert parsed.enable_large_batch_splitting.value and parsed.num_batch_threads.value == 2
    assert parsed.max_enqueued_batches.value and parsed.batch_timeout_micros.value
    # With allowed sizes the last would have to be max_batch_size.
    assert not parsed.allowed_batch_sizes


def test_monitoring_and_tls_are_the_servers_and_a_misspelt_field_would_be_seen(genuine):
    parsed = genuine("MonitoringConfig", recipes.monitoring()).prometheus_config
    assert parsed.enable and parsed.path == "/monitoring/prometheus/metrics"
    pem = "-----BEGIN X-----\nab+/=\n-----END X-----\n"
    parsed = genuine("SSLConfig", recipes.ssl_config(pem, pem + pem))
    assert (parsed.server_key, parsed.server_cert, parsed.client_verify) == (pem, pem + pem, False)
    with pytest.raises(text_format.ParseError):
        genuine("BatchingParameters", recipes.batching_parameters().replace("max_batch_size", "batch_size"))


def test_docker_runs_it_on_loopback_read_only_and_without_privileges(tmp_path):
    command = recipes.docker_command({"m": tmp_path / "m"}, tmp_path / "c", image="tensorflow/serving:1", grpc_port=1)
    image = command.index("tensorflow/serving:1")
    before, after = command[:image], command[image + 1 :]
    assert {"--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--user=65534:65534"} <= set(before)
    published = [flag for flag in before if flag.startswith("--publish")]
    assert published == ["--publish=127.0.0.1:1:8500", "--publish=127.0.0.1:8501:8501"]
    mounts = [flag for flag in before if flag.startswith("--mount")]
    assert mounts == [
        f"--mount=type=bind,source={tmp_path}/c,target=/config,readonly",
        f"--mount=type=bind,source={tmp_path}/m,target=/models/m,readonly",
    ]
    odd = recipes.docker_command({"m": pathlib.Path('/a,"b/m')}, tmp_path)
    assert '--mount=type=bind,"source=/a,""b/m",target=/models/m,readonly' in odd
    assert "--port=8500" in after and "--model_config_file=/config/models.config" in after
    assert not any("ssl" in flag for flag in after)
    assert "--ssl_config_file=/c/ssl.config" in recipes.server_flags("/c", tls=True)


@pytest.fixture
def proxy(server, certificate, tmp_path):
    """nginx with the proxy file in front of the development server: its ports for REST and for gRPC."""
    if shutil.which("nginx") is None:
        pytest.skip("nginx, which is to take the proxy file, is not installed")
    key, certificate_file = certificate
    shutil.copy(key, tmp_path / "server.key")
    shutil.copy(certificate_file, tmp_path / "server.crt")
    behind = {
        "rest_port": int(server.rest_url.rpartition(":")[2]),
        "grpc_port": int(server.grpc_url.rpartition(":")[2]),
    }
    ports = []
    for _ in range(2):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            ports.append(taken.getsockname()[1])
    inside = recipes.nginx(["x.y", "small"], **behind).replace("/etc/nginx/tls", str(tmp_path))
    inside = inside.replace("listen 443", f"listen 127.0.0.1:{ports[0]}").replace("8443", f"127.0.0.1:{ports[1]}")
    head = f"daemon off;\npid {tmp_path}/pid;\nerror_log stderr;\nevents {{ }}\n"
    (tmp_path / "nginx.conf").write_text(f"{head}http {{\naccess_log off;\n{inside}}}\n")
    command = ["nginx", "-c", str(tmp_path / "nginx.conf")]
    done = subprocess.run([*command, "-t"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", ports[1])):
                break
            time.sleep(0.05)
        yield ports
    finally:
        process.terminate()
        process.wait(20)


def test_the_proxy_speaks_tls_and_lets_no_other_call_pass(proxy, certificate, exported, report):
    import grpc
    from tensorflow_serving.apis import model_management_pb2, model_service_pb2_grpc

    authority, answer = str(certificate[1]), golden.read(exported / "1")
    for url in (f"https://127.0.0.1:{proxy[0]}", f"grpcs://127.0.0.1:{proxy[1]}"):
        with Client(url, "small", authority=authority) as client:
            assert probe.differences(answer, client.predict(answer["images"])) == []
            assert client.report_text() == report.to_json() and client.status()[0]["state"] == "AVAILABLE"
        with Client(url, "small", label="stable", authority=authority) as client:
            assert client.metadata()["version"] == 1
    context = ssl.create_default_context(cafile=authority)
    for path in ("/monitoring/prometheus/metrics", "/v1/models/other/metadata", "/v1/models/small:regress", "/"):
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(f"https://127.0.0.1:{proxy[0]}{path}", context=context, timeout=20)
    credentials = grpc.ssl_channel_credentials(certificate[1].read_bytes())
    with grpc.secure_channel(f"127.0.0.1:{proxy[1]}", credentials) as channel, pytest.raises(grpc.RpcError) as caught:
        stub = model_service_pb2_grpc.ModelServiceStub(channel)
        stub.HandleReloadConfigRequest(model_management_pb2.ReloadConfigRequest(), timeout=20)
    assert caught.value.code() == grpc.StatusCode.PERMISSION_DENIED
