"""SavedModels that mean harm or are broken: each case changes a copy of one small whole export."""

import pathlib
import shutil

import stored
import tensorflow as tf
from tensorflow.core.framework import function_pb2, graph_pb2, types_pb2
from tensorflow.core.protobuf import saved_model_pb2

# What touches files, sockets, other processes, the terminal, or nobody knows what.
REFUSED_OPERATIONS = """
    ReadFile WriteFile MatchingFiles ImmutableConst WholeFileReaderV2 TextLineReaderV2 LMDBReader
    PrintV2 Print DebugIdentityV2 DebugNumericSummaryV2 WriteSummary CreateSummaryFileWriter
    PyFunc PyFuncStateless EagerPyFunc SaveV2 RestoreV2 Save MergeV2Checkpoints SaveSlices
    LoadDataset SaveDatasetV2 TextLineDataset TFRecordDataset DatasetFromGraph IteratorV2
    RemoteCall RpcCall CollectiveReduceV2 _Send _HostSend DataServiceDatasetV4
    XlaHostCompute _XlaHostComputeMlir XlaCustomCallV2 XlaCallModule TPUExecute OutfeedEnqueue
    DecodeProtoV2 FixedUnigramCandidateSampler GenerateVocabRemapping LoadAndRemapMatrix Abort
    Stage FIFOQueueV2 DecodeCompressed Empty SomebodysOwnKernel Readfile Relu\u200b
""".split()
PLACES = ("graph", "function", "unused function", "nested function")


def read(directory: pathlib.Path) -> saved_model_pb2.SavedModel:
    return saved_model_pb2.SavedModel.FromString((directory / "saved_model.pb").read_bytes())


def write(directory: pathlib.Path, program) -> None:
    (directory / "saved_model.pb").write_bytes(program.SerializeToString())


def changed(change):
    """A builder from a function of the graph (`MetaGraphDef`)."""

    def build(directory: pathlib.Path, *arguments) -> None:
        program = read(directory)
        change(program.meta_graphs[0], *arguments)
        write(directory, program)

    return build


class Cases(dict):
    """Name -> (what makes it of a copy of the export, a part of the line it is refused with)."""

    def folder(self, part: str):
        """Add a function of the folder under its own name."""

        def add(build):
            self[build.__name__.strip("_").replace("_", " ")] = (build, part)
            return build

        return add

    def graph(self, part: str):
        """Add a function of the graph under its own name."""

        def add(change):
            self[change.__name__.strip("_").replace("_", " ")] = (changed(change), part)
            return change

        return add


# ------------------------------------------------------------------------------------------------ parts of graphs


def served_function(graph) -> function_pb2.FunctionDef:
    """The function behind `serving_default`."""
    name = _serving_node(graph).attr["f"].func.name
    return next(function for function in graph.graph_def.library.function if function.signature.name == name)


def _serving_node(graph):
    output = next(iter(graph.signature_def["serving_default"].outputs.values())).name
    return next(node for node in graph.graph_def.node if node.name == output.split(":")[0])


def run_by_the_graph(graph) -> None:
    """Run `canary` in the main graph with every call of the model."""
    _serving_node(graph).input.append("^canary")


def new_function(graph, name: str) -> function_pb2.FunctionDef:
    function = graph.graph_def.library.function.add()
    function.signature.name = name
    return function


def new_node(nodes, name: str, operation: str, inputs=()):
    node = nodes.add(name=name, op=operation)
    node.input.extend(inputs)
    return node


def new_call(nodes, name: str, function: str, inputs=()):
    node = new_node(nodes, name, "StatefulPartitionedCall", inputs)
    node.attr["f"].func.name = function
    return node


def new_constant(nodes, name: str, value):
    node = new_node(nodes, name, "Const")
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
    node.attr["dtype"].type = node.attr["value"].tensor.dtype
    return node


def new_table(nodes, path: str, also: str = ""):
    """A node `canary` that reads the file whose name is the output `path`."""
    return new_node(nodes, "canary", "InitializeTableFromTextFileV2", [path, also or path])


def new_asset(directory: pathlib.Path, graph, name: str):
    """The asset words.txt, whose name goes to the output `name`."""
    (directory / "assets").mkdir(exist_ok=True)
    (directory / "assets" / "words.txt").write_text("a\n")
    graph.asset_file_def.add(filename="words.txt").tensor_info.name = name


def fill(tensor, count: int = 2**40, kind: int = types_pb2.DT_FLOAT) -> None:
    """Make a constant of a few bytes that becomes so many numbers."""
    tensor.dtype = kind
    tensor.tensor_shape.dim.add(size=count)
    if kind == types_pb2.DT_STRING:
        tensor.string_val.append(b"")
    elif count > 0:
        tensor.float_val.append(1.0)


def tensor_of(nodes, name: str = "bomb"):
    return new_node(nodes, name, "Const").attr["value"].tensor


@changed
def add_operation(graph, operation: str, location: str) -> None:
    served = served_function(graph)
    if location == "graph":
        new_node(graph.graph_def.node, "canary", operation)
        run_by_the_graph(graph)
    elif location == "function":
        new_node(served.node_def, "canary", operation)
    elif location == "unused function":
        # Of a saver that nothing reaches, saving would be its business: so something reaches it by its name alone.
        new_node(new_function(graph, "aside").node_def, "canary", operation)
        graph.object_graph_def.concrete_functions["aside"].SetInParent()
    else:
        new_call(served.node_def, "outer_call", "outer")
        new_call(new_function(graph, "outer").node_def, "inner_call", "inner")
        new_node(new_function(graph, "inner").node_def, "canary", operation)


# ---------------------------------------------------------------------------------------------------------- cases

CASES = Cases()
_READS = "not one of its assets"


@CASES.graph(_READS)
def table_of_a_named_file(graph) -> None:
    nodes = served_function(graph).node_def
    new_constant(nodes, "path", "/etc/passwd")
    new_table(nodes, "path:output:0")


def _table_function(graph) -> None:
    function = new_function(graph, "table")
    function.signature.input_arg.add(name="path", type=types_pb2.DT_STRING)
    new_node(function.node_def, "same", "Identity", ["path"])
    new_table(function.node_def, "path", "same:output:0")


@CASES.graph(_READS)
def table_of_a_file_named_by_a_caller(graph) -> None:
    _table_function(graph)
    nodes = served_function(graph).node_def
    new_constant(nodes, "secret", "/etc/passwd")
    new_call(nodes, "call", "table", ["secret:output:0"])


@CASES.graph(_READS)
def table_called_in_a_way_nobody_can_follow(graph) -> None:
    _table_function(graph)
    outer = new_call(served_function(graph).node_def, "call", "forward")
    outer.attr["f"].func.attr["chosen"].func.name = "table"
    forward = new_function(graph, "forward")
    new_node(forward.node_def, "inner", "StatefulPartitionedCall").attr["f"].placeholder = "chosen"


@CASES.folder(_READS)
def own_asset_read_by_an_answer(directory: pathlib.Path) -> None:
    """A server gives the asset's name only while it loads; later the constant speaks."""

    def change(graph) -> None:
        new_constant(graph.graph_def.node, "words", "/etc/passwd")
        new_asset(directory, graph, "words:0")
        new_table(graph.graph_def.node, "words")
        run_by_the_graph(graph)

    changed(change)(directory)


@CASES.graph(_READS)
def restore_of_a_named_file(graph) -> None:
    nodes = graph.graph_def.node
    new_constant(nodes, "elsewhere", "/other/model/variables/variables")
    new_node(nodes, "canary", "RestoreV2", ["elsewhere", "elsewhere", "elsewhere"])


@CASES.graph("calls itself")
def functions_in_a_circle(graph) -> None:
    new_call(new_function(graph, "day").node_def, "next", "night")
    new_call(new_function(graph, "night").node_def, "next", "day")


@CASES.folder("damaged, or not a SavedModel")
def deep_protocol_buffer(directory: pathlib.Path) -> None:
    value = graph_pb2.GraphDef().node.add(op="NoOp", name="deep").attr["f"]
    for _ in range(60):  # more levels than any parser takes: each is three messages
        outer = graph_pb2.GraphDef().node.add(op="NoOp", name="deep")
        outer.attr["f"].func.name = "f"
        outer.attr["f"].func.attr["f"].CopyFrom(value)
        value = outer.attr["f"]
    changed(lambda graph: graph.graph_def.node.add(op="NoOp", name="deep").attr["f"].CopyFrom(value))(directory)


@CASES.folder("'WriteFile'")
def second_graph(directory: pathlib.Path) -> None:
    program = read(directory)
    second = program.meta_graphs.add()
    second.meta_info_def.tags.append("train")
    new_node(second.graph_def.node, "canary", "WriteFile")
    write(directory, program)


def _asset(name: str):
    return changed(lambda graph: setattr(graph.asset_file_def.add(filename=name).tensor_info, "name", "nothing:0"))


def _file(name: str, change):
    """The content of the first file of that name or pattern replaced by what `change` makes of it."""

    def build(directory: pathlib.Path) -> None:
        path = next(directory.glob(name))
        path.write_bytes(change(path.read_bytes()))

    return build


def _replaced(name: str, make=lambda path: None):
    """The file, or folder, of that name replaced by what `make` puts there."""

    def build(directory: pathlib.Path) -> None:
        path = next(directory.glob(name), directory / name)
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        make(path)

    return build


def _half(content: bytes) -> bytes:
    return content[: len(content) // 2]


_PROGRAM, _INDEX, _DATA = "saved_model.pb", "variables/variables.index", "variables/variables.data-*"

CASES |= stored.cases(__file__, "programs", globals())
