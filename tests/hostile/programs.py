"""SavedModels that mean harm or are broken: each case changes a copy of one small whole export."""

import functools
import os
import pathlib
import shutil

import tensorflow as tf
from tensorflow.core.framework import function_pb2, graph_pb2, types_pb2
from tensorflow.core.protobuf import saved_model_pb2

# What touches files, sockets, other processes, the terminal, or nobody knows what.
REFUSED_OPERATIONS = (
    *(
        "ReadFile",
        "WriteFile",
        "MatchingFiles",
        "ImmutableConst",
        "WholeFileReaderV2",
        "TextLineReaderV2",
        "LMDBReader",
    ),
    *("PrintV2", "Print", "DebugIdentityV2", "DebugNumericSummaryV2", "WriteSummary", "CreateSummaryFileWriter"),
    *("PyFunc", "PyFuncStateless", "EagerPyFunc", "SaveV2", "RestoreV2", "Save", "MergeV2Checkpoints", "SaveSlices"),
    *("LoadDataset", "SaveDatasetV2", "TextLineDataset", "TFRecordDataset", "DatasetFromGraph", "IteratorV2"),
    *("RemoteCall", "RpcCall", "CollectiveReduceV2", "_Send", "_HostSend", "DataServiceDatasetV4"),
    *("XlaHostCompute", "_XlaHostComputeMlir", "XlaCustomCallV2", "XlaCallModule", "TPUExecute", "OutfeedEnqueue"),
    *("DecodeProtoV2", "FixedUnigramCandidateSampler", "GenerateVocabRemapping", "LoadAndRemapMatrix", "Abort"),
    *("Stage", "FIFOQueueV2", "DecodeCompressed", "Empty", "SomebodysOwnKernel", "Readfile", "Relu\u200b"),
)
PLACES = ("graph", "function", "unused function", "nested function")


def read(directory: pathlib.Path) -> saved_model_pb2.SavedModel:
    return saved_model_pb2.SavedModel.FromString((directory / "saved_model.pb").read_bytes())


def write(directory: pathlib.Path, program) -> None:
    (directory / "saved_model.pb").write_bytes(program.SerializeToString())


def changed(change):
    """A builder from a function of the graph (`MetaGraphDef`)."""

    @functools.wraps(change)
    def build(directory: pathlib.Path, *arguments) -> None:
        program = read(directory)
        change(program.meta_graphs[0], *arguments)
        write(directory, program)

    return build


def served_function(graph) -> function_pb2.FunctionDef:
    """The function behind `serving_default`."""
    output = next(iter(graph.signature_def["serving_default"].outputs.values())).name
    node = next(node for node in graph.graph_def.node if node.name == output.split(":")[0])
    return next(f for f in graph.graph_def.library.function if f.signature.name == node.attr["f"].func.name)


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


@changed
def add_operation(graph, operation: str, place: str) -> None:
    served = served_function(graph)
    if place == "graph":
        new_node(graph.graph_def.node, "canary", operation)
        node = next(node for node in graph.graph_def.node if node.attr["f"].func.name == served.signature.name)
        node.input.append("^canary")
    elif place == "function":
        new_node(served.node_def, "canary", operation)
    elif place == "unused function":
        # Of a saver that nothing reaches, saving would be its business: so something reaches it by its name alone.
        new_node(new_function(graph, "aside").node_def, "canary", operation)
        graph.object_graph_def.concrete_functions["aside"].SetInParent()
    else:
        new_call(served.node_def, "outer_call", "outer")
        new_call(new_function(graph, "outer").node_def, "inner_call", "inner")
        new_node(new_function(graph, "inner").node_def, "canary", operation)


def text_node(nodes, name: str, text: str):
    node = new_node(nodes, name, "Const")
    node.attr["dtype"].type = types_pb2.DT_STRING
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(text))
    return node


@changed
def table_of_a_named_file(graph) -> None:
    nodes = served_function(graph).node_def
    text_node(nodes, "path", "/etc/passwd")
    new_node(nodes, "canary", "InitializeTableFromTextFileV2", ["path:output:0", "path:output:0"])


@changed
def table_of_a_file_the_client_names(graph) -> None:
    function = served_function(graph)
    argument = function.signature.input_arg[0].name
    new_node(function.node_def, "canary", "InitializeTableFromTextFileV2", [argument, argument])


def _table_function(graph) -> None:
    function = new_function(graph, "table")
    function.signature.input_arg.add(name="path", type=types_pb2.DT_STRING)
    new_node(function.node_def, "same", "Identity", ["path"])
    new_node(function.node_def, "canary", "InitializeTableFromTextFileV2", ["path", "same:output:0"])


@changed
def table_of_a_file_named_by_a_caller(graph) -> None:
    _table_function(graph)
    nodes = served_function(graph).node_def
    text_node(nodes, "secret", "/etc/passwd")
    new_call(nodes, "call", "table", ["secret:output:0"])


@changed
def table_called_in_a_way_nobody_can_follow(graph) -> None:
    _table_function(graph)
    outer = new_call(served_function(graph).node_def, "call", "forward")
    outer.attr["f"].func.attr["chosen"].func.name = "table"
    forward = new_function(graph, "forward")
    new_node(forward.node_def, "inner", "StatefulPartitionedCall").attr["f"].placeholder = "chosen"


def own_asset_read_by_an_answer(directory: pathlib.Path) -> None:
    """A server gives the asset's name only while it loads; later the constant speaks."""
    (directory / "assets").mkdir(exist_ok=True)
    (directory / "assets" / "words.txt").write_text("a\n")
    program = read(directory)
    graph = program.meta_graphs[0]
    text_node(graph.graph_def.node, "words", "/etc/passwd")
    asset = graph.asset_file_def.add(filename="words.txt")
    asset.tensor_info.name = "words:0"
    new_node(graph.graph_def.node, "canary", "InitializeTableFromTextFileV2", ["words", "words"])
    name = served_function(graph).signature.name
    next(node for node in graph.graph_def.node if node.attr["f"].func.name == name).input.append("^canary")
    write(directory, program)


@changed
def restore_of_a_named_file(graph) -> None:
    nodes = graph.graph_def.node
    text_node(nodes, "elsewhere", "/other/model/variables/variables")
    new_node(nodes, "canary", "RestoreV2", ["elsewhere", "elsewhere", "elsewhere"])


@changed
def huge_constant(graph) -> None:
    tensor = new_node(served_function(graph).node_def, "bomb", "Const").attr["value"].tensor
    tensor.dtype = types_pb2.DT_FLOAT
    tensor.tensor_shape.dim.add(size=2**40)
    tensor.float_val.append(1.0)


@changed
def many_large_constants(graph) -> None:
    for number in range(40):
        tensor = new_node(served_function(graph).node_def, f"part_{number}", "Const").attr["value"].tensor
        tensor.dtype = types_pb2.DT_FLOAT
        tensor.tensor_shape.dim.add(size=2**24)
        tensor.float_val.append(1.0)


@changed
def constant_of_negative_size(graph) -> None:
    tensor = new_node(served_function(graph).node_def, "negative", "Const").attr["value"].tensor
    tensor.dtype = types_pb2.DT_FLOAT
    tensor.tensor_shape.dim.add(size=-5)


@changed
def constant_of_no_type(graph) -> None:
    new_node(served_function(graph).node_def, "odd", "Const").attr["value"].tensor.dtype = 9999


@changed
def function_that_calls_itself(graph) -> None:
    function = served_function(graph)
    new_call(function.node_def, "again", function.signature.name)


@changed
def functions_in_a_circle(graph) -> None:
    new_call(new_function(graph, "day").node_def, "next", "night")
    new_call(new_function(graph, "night").node_def, "next", "day")


@changed
def function_that_is_not_there(graph) -> None:
    new_call(served_function(graph).node_def, "call", "nowhere")


@changed
def function_named_as_an_operation(graph) -> None:
    """A call of "ReadFile": no such function, but such a kernel."""
    new_call(served_function(graph).node_def, "call", "ReadFile")


@changed
def function_twice(graph) -> None:
    graph.graph_def.library.function.add().CopyFrom(graph.graph_def.library.function[0])


@changed
def node_twice(graph) -> None:
    graph.graph_def.node.add().CopyFrom(graph.graph_def.node[0])


def _asset(name: str):
    @changed
    def build(graph) -> None:
        graph.asset_file_def.add(filename=name).tensor_info.name = "nothing:0"

    return build


def deep_protocol_buffer(directory: pathlib.Path) -> None:
    node = graph_pb2.GraphDef().node.add(op="NoOp", name="deep")
    value = node.attr["f"]
    for _ in range(60):  # more levels than any parser takes: each is three messages
        outer = graph_pb2.GraphDef().node.add(op="NoOp", name="deep")
        outer.attr["f"].func.name = "f"
        outer.attr["f"].func.attr["f"].CopyFrom(value)
        value = outer.attr["f"]
    program = read(directory)
    program.meta_graphs[0].graph_def.node.add(op="NoOp", name="deep").attr["f"].CopyFrom(value)
    write(directory, program)


def _second_graph(directory: pathlib.Path) -> None:
    program = read(directory)
    second = program.meta_graphs.add()
    second.meta_info_def.tags.append("train")
    new_node(second.graph_def.node, "canary", "WriteFile")
    write(directory, program)


def _program_bytes(content):
    def build(directory: pathlib.Path) -> None:
        path = directory / "saved_model.pb"
        path.write_bytes(content(path.read_bytes()) if callable(content) else content)

    return build


def _replaced(name: str, make):
    """The file, or folder, of that name replaced by what `make` puts there."""

    def build(directory: pathlib.Path) -> None:
        path = directory / name
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        make(path)

    return build


def _beside(name: str, content: bytes = b""):
    return lambda directory: (directory / name).write_bytes(content)


def _short_data(directory: pathlib.Path) -> None:
    path = next((directory / "variables").glob("variables.data-*"))
    path.write_bytes(path.read_bytes()[:40])


def _index(change):
    def build(directory: pathlib.Path) -> None:
        path = directory / "variables" / "variables.index"
        path.write_bytes(change(path.read_bytes()))

    return build


# Name -> (what makes it, a part of the line it is refused with).
CASES = {
    "table of a named file": (table_of_a_named_file, "not one of its assets"),
    "table of a file the client names": (table_of_a_file_the_client_names, "not one of its assets"),
    "table of a file named by a caller": (table_of_a_file_named_by_a_caller, "not one of its assets"),
    "table called in a way nobody can follow": (table_called_in_a_way_nobody_can_follow, "not one of its assets"),
    "own asset read by an answer": (own_asset_read_by_an_answer, "not one of its assets"),
    "restore of a named file": (restore_of_a_named_file, "not one of its assets"),
    "huge constant": (huge_constant, "too many bytes"),
    "many large constants": (many_large_constants, "too many bytes"),
    "constant of negative size": (constant_of_negative_size, "no known size"),
    "constant of no type": (constant_of_no_type, "no known size"),
    "function that calls itself": (function_that_calls_itself, "calls itself"),
    "functions in a circle": (functions_in_a_circle, "calls itself"),
    "function that is not there": (function_that_is_not_there, "which is not there"),
    "function named as an operation": (function_named_as_an_operation, "which is not there"),
    "function twice": (function_twice, "stands twice"),
    "node twice": (node_twice, "stands twice"),
    "asset above": (_asset("../../outside.txt"), "lies outside assets/"),
    "asset of the system": (_asset("/etc/passwd"), "lies outside assets/"),
    "asset with a backslash": (_asset("..\\outside.txt"), "lies outside assets/"),
    "asset with a control character": (_asset("a\x1b[2Jb"), "lies outside assets/"),
    "asset without a name": (_asset(""), "lies outside assets/"),
    "asset that is missing": (_asset("words.txt"), "is missing in assets/"),
    "asset of a long name": (_asset("a" * 5000), "is missing in assets/"),
    "deep protocol buffer": (deep_protocol_buffer, "damaged, or no SavedModel"),
    "second graph": (_second_graph, "'WriteFile'"),
    "no program": (_replaced("saved_model.pb", lambda path: None), "neither saved_model.pb nor a numbered version"),
    "empty program": (_program_bytes(b""), "holds no graph"),
    "random bytes": (_program_bytes(bytes(range(256)) * 8), "damaged, or no SavedModel"),
    "half a program": (_program_bytes(lambda content: content[: len(content) // 2]), "damaged, or no SavedModel"),
    "text for a program": (_program_bytes(b"import os"), "holds no graph"),
    "folder for a program": (_replaced("saved_model.pb", lambda path: path.mkdir()), "saved_model.pb is missing"),
    "pipe for a program": (_replaced("saved_model.pb", os.mkfifo), "neither a file nor a folder"),
    "program as text beside": (_beside("saved_model.pbtxt"), "stands beside"),
    "program in parts beside": (_beside("saved_model.cpb"), "stands beside"),
    "link out": (_replaced("assets", lambda path: path.symlink_to("/etc")), "leads out of the folder"),
    "program by a link": (
        _replaced("saved_model.pb", lambda path: path.symlink_to("/etc/hostname")),
        "leads out of the folder",
    ),
    "link to nothing": (_replaced("assets", lambda path: path.symlink_to("nothing")), "cannot be read"),
    "link to itself": (_replaced("assets", lambda path: path.symlink_to("assets")), "cannot be read"),
    "pipe among the assets": (lambda directory: os.mkfifo(directory / "assets" / "a"), "neither a file nor a folder"),
    "data cut short": (_short_data, "ends behind the end of its data file"),
    "index of random bytes": (_index(lambda content: b"\x00" * 200), "index is damaged"),
    "half an index": (_index(lambda content: content[: len(content) // 2]), "index is damaged"),
    "index alone": (
        lambda directory: next((directory / "variables").glob("variables.data-*")).unlink(),
        "variables",
    ),
    "data alone": (lambda directory: (directory / "variables" / "variables.index").unlink(), "index is missing"),
}
