"""The command `tfrobust serve`: serve exported models with the official TensorFlow Serving.

    python -m tfrobust serve exported/ascl_leaked                     # REST on 8501, gRPC on 8500, loopback only
    python -m tfrobust serve exported/ascl_leaked --label=ascl_leaked:stable=1
    python -m tfrobust serve exported/ascl_leaked --write_only        # the files and the command, nothing started
    python -m tfrobust serve exported/ascl_leaked --development       # a small substitute, NOT TensorFlow Serving

Uses the Docker image of TensorFlow Serving, or `tensorflow_model_server` if it is installed. Writes the server's
configuration (models and version labels, batching, monitoring, and an nginx.conf for TLS in front of it) to
--config_dir, prints the command and replaces itself by it. Returns 2, with what to install, if neither Docker nor the
binary is available. See tfrobust/guides/serving.md.
"""

import argparse
import contextlib
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time

from tfrobust.commands import failures
from tfrobust.commands.flags import Parser
from tfrobust.commands.run import quiet_stderr
from tfrobust.common.files import SAVED_MODEL_FILE, write_atomically
from tfrobust.errors import InputError
from tfrobust.serving.export import publish
from tfrobust.serving.server import recipes

BINARY = "tensorflow_model_server"
_NOT_IN_DEVELOPMENT = ("write_only", "tls_key", "all_interfaces", "image", "config_dir")
INSTALL = (
    "Install one: Docker (docs.docker.com/engine/install), then `docker pull tensorflow/serving`; or the package "
    "tensorflow-model-server (tensorflow.org/tfx/serving/setup). Or try --development, which is NOT TF Serving."
)


def parser() -> Parser:
    """Return the command's flags."""
    flags = Parser("serve", "Serve exported models with the official TensorFlow Serving, on loopback.")
    flags.add_argument("models", metavar="DIR", nargs="+", type=pathlib.Path, help="exported/NAME, with its versions")
    flags.add_argument(
        "--label", metavar="MODEL:LABEL=N", action="append", default=[], help="serve version N by a name"
    )
    flags.add_argument("--rest_port", metavar="N", type=port, default=recipes.REST_PORT, help="default: 8501")
    flags.add_argument("--grpc_port", metavar="N", type=port, default=recipes.GRPC_PORT, help="default: 8500")
    help_text = f"Docker image, better with a tag; default: {recipes.IMAGE}"
    flags.add_argument("--image", metavar="NAME", default=recipes.IMAGE, help=help_text)
    folder = pathlib.Path("runs/serving")
    help_text = f"where the server's configuration is written; default: {folder}"
    flags.add_argument("--config_dir", metavar="DIR", type=pathlib.Path, default=folder, help=help_text)
    flags.add_argument("--tls_key", metavar="FILE", type=pathlib.Path, help="PEM; with --tls_certificate: TLS for gRPC")
    flags.add_argument("--tls_certificate", metavar="FILE", type=pathlib.Path, help="PEM; with --tls_key")
    flags.add_argument(
        "--all_interfaces",
        action="store_true",
        help=f"listen on every network interface, as {BINARY} always does, without passwords; a firewall is required",
    )
    flags.add_argument("--write_only", action="store_true", help="write the files and print the command, start nothing")
    flags.add_argument("--development", action="store_true", help="start a small substitute, which is NOT TF Serving")
    return flags


def port(text: str) -> int:
    """Return the number of a port."""
    if re.fullmatch("[0-9]{1,5}", text) and int(text) < 2**16:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text[:40]!r} is no port, a number from 0 to 65535")


def find_server(all_interfaces: bool) -> str:
    """Return "docker" or the path of the binary.

    Raises:
        InputError: neither can be used; the message says what to install.
    """
    docker, binary = shutil.which("docker"), shutil.which(BINARY)
    if docker:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            command = [docker, "version", "--format", "{{.Server.Version}}"]
            if subprocess.run(command, capture_output=True, timeout=20).returncode == 0:
                return "docker"
    if binary and all_interfaces:
        return binary
    if binary:
        raise InputError(f"{BINARY} listens on every network interface: set --all_interfaces, behind a firewall.")
    lacking = "Docker's daemon does not respond" if docker else "There is no Docker"
    raise InputError(f"{lacking}, and no {BINARY}. {INSTALL}")


def read_labels(texts: list[str], folders: dict[str, pathlib.Path]) -> dict[str, dict[str, int]]:
    """Parse --label=MODEL:LABEL=N and check that the versions exist: model -> {label: version}."""
    labels: dict[str, dict[str, int]] = {}
    for text in texts:
        match = re.fullmatch(r"([^:=]+):([^:=]+)=(\d{1,18})", text)
        if match is None or match[1] not in folders:
            raise InputError(f"--label={text[:80]} is not MODEL:LABEL=N with a model of {', '.join(folders)[:120]}.")
        if int(match[3]) not in publish.versions(folders[match[1]]):
            raise InputError(
                f"--label={text[:80]}: {folders[match[1]]} has versions {publish.versions(folders[match[1]])}."
            )
        of_model = labels.setdefault(match[1], {})
        if of_model.setdefault(match[2], int(match[3])) != int(match[3]):
            raise InputError(
                f"--label={text[:80]}: {match[2][:80]} is a label of version {of_model[match[2]]} already."
            )
    return labels


def read_folders(paths: list[pathlib.Path]) -> dict[str, pathlib.Path]:
    """Return model name -> its folder, which must hold versions, of which the newest must be a SavedModel."""
    folders = {path.resolve().name: path.resolve() for path in paths}
    if len(folders) < len(paths):
        raise InputError("Two of the models have the same name.")
    for path in folders.values():
        if not publish.versions(path):
            raise InputError(f"{path} has no versions (folders 1, 2, ...); name one exported model, exported/NAME.")
        newest = path / str(publish.versions(path)[-1])
        if not (newest / SAVED_MODEL_FILE).is_file():
            raise InputError(
                f"{newest} has no {SAVED_MODEL_FILE}; name the SavedModel that a conversion was made from."
            )
    return folders


def write_files(flags: argparse.Namespace, folders: dict[str, pathlib.Path], labels, *, in_container: bool) -> None:
    """Write the server's configuration to --config_dir."""
    seen = recipes.container_models(list(folders)) if in_container else {n: str(p) for n, p in folders.items()}
    ports = {"rest_port": flags.rest_port, "grpc_port": flags.grpc_port}
    texts = {
        recipes.MODELS_FILE: recipes.models_config(seen, labels),
        recipes.BATCHING_FILE: recipes.batching_parameters(threads=os.cpu_count() or 1),
        recipes.MONITORING_FILE: recipes.monitoring(),
        recipes.PROXY_FILE: recipes.nginx(list(folders), tls=flags.tls_key is not None, **ports),
    }
    if flags.tls_key:
        texts[recipes.SSL_FILE] = recipes.ssl_config(read_pem(flags.tls_key), read_pem(flags.tls_certificate))
    if not flags.config_dir.exists():
        flags.config_dir.mkdir(parents=True)
        flags.config_dir.chmod(0o755)  # for a server of another user, whatever the umask is
    for name, text in texts.items():
        write_atomically(flags.config_dir / name, text, private=name == recipes.SSL_FILE)
        if name != recipes.SSL_FILE:
            (flags.config_dir / name).chmod(0o644)
    if flags.tls_key and in_container and os.getuid() == 0:
        os.chown(flags.config_dir / recipes.SSL_FILE, *map(int, user().split(":")))


def read_pem(path: pathlib.Path) -> str:
    """Return the text of a PEM file."""
    content = path.read_bytes()
    if b"-----BEGIN " not in content:
        raise InputError(f"{path} has no line '-----BEGIN ...', so it is no PEM file: convert it with openssl."[-300:])
    return content.decode(errors="replace")  # comments above that line may have any encoding


def user() -> str:
    """Return the user of the server in the container: the caller, who can read the files, or nobody instead of root."""
    return "65534:65534" if os.getuid() == 0 else f"{os.getuid()}:{os.getgid()}"


def develop(flags: argparse.Namespace, folders: dict[str, pathlib.Path], labels) -> None:
    """Run the development server until Ctrl-C."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with contextlib.ExitStack() as until_the_end:
        with quiet_stderr():  # TensorFlow writes to standard error during its import and its first operation
            from tfrobust.serving.server.development import NAME, Server

            ports = {"rest_port": flags.rest_port, "grpc_port": flags.grpc_port}
            try:
                server = until_the_end.enter_context(Server(folders, labels, **ports))
            except OSError as error:
                raise InputError(f"{error} (--rest_port={flags.rest_port}, --grpc_port={flags.grpc_port})") from error
        print(f"{NAME}: {server.rest_url} {server.grpc_url}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(3600)


def run(flags: argparse.Namespace) -> None:
    """Write the files and replace this process by the server."""
    if bool(flags.tls_key) != bool(flags.tls_certificate):
        raise InputError("TLS needs two files: set both --tls_key and --tls_certificate.")
    folders = read_folders(flags.models)
    labels = read_labels(flags.label, folders)
    if flags.development:
        defaults = vars(parser().parse_args(["unused"]))
        changed = [name for name in _NOT_IN_DEVELOPMENT if getattr(flags, name) != defaults[name]]
        if changed:
            raise InputError(f"--{changed[0]} is without effect with --development: leave one of them out.")
        develop(flags, folders, labels)
        return
    if 0 in (flags.rest_port, flags.grpc_port) or flags.rest_port == flags.grpc_port:
        raise InputError("--rest_port and --grpc_port are two ports from 1 on; 0, any free one, needs --development.")
    server = "docker" if flags.write_only else find_server(flags.all_interfaces)
    if server != "docker" and flags.image != recipes.IMAGE:
        raise InputError(f"--image is without effect, since {server} is started and not Docker: leave it out.")
    write_files(flags, folders, labels, in_container=server == "docker")
    ports = {"grpc_port": flags.grpc_port, "rest_port": flags.rest_port, "tls": flags.tls_key is not None}
    if server == "docker":
        command = recipes.docker_command(
            folders, flags.config_dir, user=user(), image=flags.image, all_interfaces=flags.all_interfaces, **ports
        )
    else:
        command = [server, *recipes.server_flags(str(flags.config_dir.resolve()), **ports)]
    print(shlex.join(command), flush=True)
    if not flags.write_only:
        os.execvp(command[0], command)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit code if nothing could be started."""
    return failures.main(parser(), run, arguments)


if __name__ == "__main__":
    sys.exit(main())
