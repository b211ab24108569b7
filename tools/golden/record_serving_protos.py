"""Record how TensorFlow Serving defines the text protos that the recipes write, as an oracle for the tests.

    git clone --depth=1 https://github.com/tensorflow/serving
    python -m pip install grpcio-tools
    python tools/golden/record_serving_protos.py --source=serving --output=tests/golden/serving_protos.binpb

tensorflow-serving-api contains only the definition of models.config; those of the batching parameters, of the
monitoring and of TLS are in no package. The output is a FileDescriptorSet of those three files, compiled by protoc.
Their imports from TensorFlow are resolved by the installed TensorFlow.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

from google.protobuf import descriptor_pb2

FILES = (
    "tensorflow_serving/config/monitoring_config.proto",
    "tensorflow_serving/config/ssl_config.proto",
    "tensorflow_serving/servables/tensorflow/session_bundle_config.proto",
)


def descriptors_of(*roots) -> descriptor_pb2.FileDescriptorSet:
    """Return the descriptors of files and of all that they import, each after its dependencies."""
    protos = {}

    def visit(file):
        if file.name not in protos:
            for needed in file.dependencies:
                visit(needed)
            protos[file.name] = descriptor_pb2.FileDescriptorProto.FromString(file.serialized_pb)

    for root in roots:
        visit(root)
    return descriptor_pb2.FileDescriptorSet(file=protos.values())


def main(arguments: list[str] | None = None) -> int:
    """Compile and write the definitions; return protoc's exit code."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--source", required=True, type=pathlib.Path, help="a checkout of tensorflow/serving")
    flags.add_argument("--output", required=True, type=pathlib.Path)
    parsed = flags.parse_args(arguments)
    from google.protobuf import wrappers_pb2
    from tensorflow.core.protobuf import config_pb2, named_tensor_pb2

    descriptors = descriptors_of(wrappers_pb2.DESCRIPTOR, config_pb2.DESCRIPTOR, named_tensor_pb2.DESCRIPTOR)
    with tempfile.NamedTemporaryFile(suffix=".binpb") as file:
        file.write(descriptors.SerializeToString())
        file.flush()
        command = [sys.executable, "-m", "grpc_tools.protoc", f"--descriptor_set_in={file.name}"]
        command += [f"--proto_path={parsed.source}", f"--descriptor_set_out={parsed.output}", *FILES]
        return subprocess.run(command).returncode


if __name__ == "__main__":
    sys.exit(main())
