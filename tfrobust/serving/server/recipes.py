"""Configuration files and command lines for the official TensorFlow Serving: hardening, batching, labels, monitoring.

`tfrobust serve` writes and runs them; `tfrobust/guides/serving.md` explains them. The server reads the text protos; the
tests parse them with the server's own definitions.
"""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Mapping, Sequence

from tfrobust.errors import InputError

IMAGE = "tensorflow/serving"
GRPC_PORT, REST_PORT = 8500, 8501
MODELS_FILE, BATCHING_FILE, MONITORING_FILE = "models.config", "batching_parameters.config", "monitoring.config"
SSL_FILE, PROXY_FILE = "ssl.config", "nginx.conf"
METRICS_PATH = "/monitoring/prometheus/metrics"
# Names and labels that are valid in a URL, a text proto and a path without escaping.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_LABEL = re.compile(r"[A-Za-z0-9_]{1,100}")


def models_config(folders: Mapping[str, str], labels: Mapping[str, Mapping[str, int]] | None = None) -> str:
    """Return a ModelServerConfig: the newest version of each model, or all labeled versions of a model with labels.

    Args:
        folders: name -> folder with the version directories, as the server sees it.
        labels: name -> {label: version}. New versions of such a model are not served until a label names them.

    Raises:
        InputError: TensorFlow Serving cannot serve a model with this name or label.
    """
    entries = []
    for name, folder in folders.items():
        _check(_NAME, name, "model name")
        lines = [f"name: {json.dumps(name)}", f"base_path: {json.dumps(str(folder))}", 'model_platform: "tensorflow"']
        of_model = (labels or {}).get(name, {})
        versions = " ".join(f"versions: {version}" for version in sorted(set(of_model.values())))
        policy = f"specific {{ {versions} }}" if of_model else "latest { num_versions: 1 }"
        lines.append(f"model_version_policy {{ {policy} }}")
        for label, version in of_model.items():
            _check(_LABEL, label, "version label")
            lines.append(f"version_labels {{ key: {json.dumps(label)} value: {version} }}")
        entries.append("  config {\n" + "".join(f"    {line}\n" for line in lines) + "  }\n")
    return "model_config_list {\n" + "".join(entries) + "}\n"


def batching_parameters(*, largest_request: int = 256, batch: int = 32, threads: int = 4) -> str:
    """Return BatchingParameters, with which requests of several clients run together.

    Args:
        largest_request: maximum number of examples in one request, at least `batch`; larger requests are refused.
        batch: maximum number of examples that run together; larger requests are split.
        threads: number of batches that run in parallel, such as the number of cores.
    """
    return f"""max_batch_size {{ value: {largest_request} }}
enable_large_batch_splitting {{ value: true }}
max_execution_batch_size {{ value: {batch} }}
batch_timeout_micros {{ value: 1000 }}
max_enqueued_batches {{ value: 100 }}
num_batch_threads {{ value: {threads} }}
"""


def monitoring() -> str:
    """Return a MonitoringConfig: Prometheus metrics on the REST port, at `METRICS_PATH`."""
    return f'prometheus_config {{ enable: true path: "{METRICS_PATH}" }}\n'


def ssl_config(key: str, certificate: str) -> str:
    """Return an SSLConfig, for gRPC only. It holds the private key: make the file readable for the server alone.

    Args:
        key: the server's private key, as PEM text.
        certificate: the server's certificate, as PEM text.
    """
    return f"server_key: {json.dumps(key)}\nserver_cert: {json.dumps(certificate)}\n"


def nginx(names: Sequence[str], *, rest_port: int = REST_PORT, grpc_port: int = GRPC_PORT, tls: bool = False) -> str:
    """Return the content of nginx's `http { }`: TLS and request limits for a server that listens on loopback.

    REST on port 443 and gRPC on port 8443. Only predictions, status and metadata pass; the metrics and the call that
    loads other models do not. Certificate and key are in `/etc/nginx/tls/`. With `tls`, the server itself
    speaks TLS over gRPC.
    """
    for name in names:
        _check(_NAME, name, "model name")
    models = "|".join(re.escape(name) for name in names)
    listening = """    ssl_certificate /etc/nginx/tls/server.crt;
    ssl_certificate_key /etc/nginx/tls/server.key;
    ssl_protocols TLSv1.2 TLSv1.3;
    client_max_body_size 16m;
    client_body_timeout 10s;"""
    refuse = "    location / { return 403; }"
    return f"""limit_req_zone $binary_remote_addr zone=tfserving:10m rate=50r/s;
server {{
    listen 443 ssl;
{listening}
    location ~ ^/v1/models/({models})(/(versions|labels)/[A-Za-z0-9_]+)?(/metadata|:predict)?$ {{
        limit_req zone=tfserving burst=100 nodelay;
        proxy_pass http://127.0.0.1:{rest_port};
        proxy_read_timeout 60s;
    }}
{refuse}
}}
server {{
    listen 8443 ssl http2;
{listening}
    location ~ ^/tensorflow\\.serving\\.(PredictionService/(Predict|GetModelMetadata)|ModelService/GetModelStatus)$ {{
        limit_req zone=tfserving burst=100 nodelay;
        grpc_pass {"grpcs" if tls else "grpc"}://127.0.0.1:{grpc_port};
        grpc_read_timeout 60s;
    }}
{refuse}
}}
"""


def server_flags(
    config: str, *, grpc_port: int = GRPC_PORT, rest_port: int = REST_PORT, tls: bool = False
) -> list[str]:
    """Return the flags of tensorflow_model_server for the files above, in folder `config` as the server sees it."""
    folder = pathlib.PurePosixPath(config)
    return [
        f"--port={grpc_port}",
        f"--rest_api_port={rest_port}",
        f"--model_config_file={folder / MODELS_FILE}",
        "--model_config_file_poll_wait_seconds=10",  # so that moving a label needs no restart
        "--allow_version_labels_for_unavailable_models=true",  # else a label is refused until its version is loaded
        "--file_system_poll_wait_seconds=5",
        "--enable_batching=true",
        f"--batching_parameters_file={folder / BATCHING_FILE}",
        f"--monitoring_config_file={folder / MONITORING_FILE}",
        "--rest_api_timeout_in_ms=30000",
        *([f"--ssl_config_file={folder / SSL_FILE}"] if tls else []),
    ]


def docker_command(
    folders: Mapping[str, pathlib.Path],
    config: pathlib.Path,
    *,
    user: str = "65534:65534",
    image: str = IMAGE,
    grpc_port: int = GRPC_PORT,
    rest_port: int = REST_PORT,
    tls: bool = False,
    all_interfaces: bool = False,
) -> list[str]:
    """Return `docker run` of the official image: on loopback, read-only, unprivileged, as the user nobody.

    Args:
        folders: model name -> its folder on this machine, mounted at `/models/<name>`.
        config: folder of the files above on this machine, mounted at `/config`.
        user: user and group of the server; must be able to read both.
        image: image name; give it a tag to pin the server's version.
        grpc_port: gRPC port on this machine's loopback interface.
        rest_port: REST port on this machine's loopback interface.
        tls: True if the configuration has an `ssl.config`.
        all_interfaces: True for both ports on every network interface of this machine, behind a firewall.
    """
    mounts = {config.resolve(): "/config", **{path.resolve(): f"/models/{name}" for name, path in folders.items()}}
    address = "" if all_interfaces else "127.0.0.1:"
    return [
        *("docker", "run", "--rm", "--init", f"--user={user}"),
        f"--publish={address}{grpc_port}:{GRPC_PORT}",
        f"--publish={address}{rest_port}:{REST_PORT}",
        *(
            f"--mount=type=bind,{_csv(f'source={source}')},target={target},readonly"
            for source, target in mounts.items()
        ),
        *("--read-only", "--tmpfs=/tmp", "--cap-drop=ALL", "--security-opt=no-new-privileges"),
        *("--memory=4g", "--pids-limit=512"),
        *("--entrypoint=/usr/bin/tensorflow_model_server", image),
        *server_flags("/config", tls=tls),
    ]


def container_models(names: Sequence[str]) -> dict[str, str]:
    """Return name -> the folder at which `docker_command` mounts it."""
    return {name: f"/models/{name}" for name in names}


def _csv(field: str) -> str:
    """Return a field of CSV, as which Docker reads the value of --mount."""
    return '"' + field.replace('"', '""') + '"' if re.search('[",]', field) else field


def _check(pattern: re.Pattern, text: str, kind: str) -> None:
    if not pattern.fullmatch(text):
        raise InputError(f"{text!r:.80} is no {kind}: letters, digits and _ (in names also . and -) are taken.")
