"""SavedModels in which no scan finds anything, and that fail when they are loaded or asked."""

import stored
from hostile.programs import Cases, changed, new_constant, new_node, read, served_function, write
from tensorflow.core.framework import types_pb2

CASES = Cases()
ASKED, LOADED, UNSIGNED = "fails when it is called", "cannot load it", "no signature 'serving_default'"


@CASES.graph(ASKED)
def false_assertion(graph) -> None:
    function = served_function(graph)
    nodes = function.node_def
    for name, value in (("no", False), ("why", "never")):
        new_constant(nodes, name, value)
    node = new_node(nodes, "assertion", "Assert", ["no:output:0", "why:output:0"])
    node.attr["T"].list.type.append(types_pb2.DT_STRING)
    nodes[0].input.append("^assertion")
    function.control_ret["assertion"] = "assertion"
    function.signature.control_output.append("assertion")


def _on(device: str):
    return changed(lambda graph: [setattr(node, "device", device) for node in served_function(graph).node_def])


def _bound(change):
    """A change of the inputs that the loader binds to the functions behind the signatures."""

    @changed
    def build(graph) -> None:
        for held in graph.object_graph_def.concrete_functions.values():
            if held.bound_inputs:
                held.bound_inputs[:] = change(list(held.bound_inputs))

    return build


@CASES.graph(UNSIGNED)
def no_signatures(graph) -> None:
    children = graph.object_graph_def.nodes[0].children
    remaining = [child for child in children if child.local_name != "signatures"]
    del children[:]
    children.extend(remaining)


def _variable(graph) -> int:
    return next(number for number, node in enumerate(graph.object_graph_def.nodes) if node.HasField("variable"))


def _signatures(graph):
    return next(child for child in graph.object_graph_def.nodes[0].children if child.local_name == "signatures")


@CASES.graph(ASKED)
def signature_that_is_a_variable(graph) -> None:
    for child in graph.object_graph_def.nodes[_signatures(graph).node_id].children:
        child.node_id = _variable(graph)


def _without(field: str):
    return changed(
        lambda graph: [function.ClearField(field) for function in graph.object_graph_def.concrete_functions.values()]
    )


@CASES.graph(LOADED)
def matrix_of_no_size(graph) -> None:
    for function in graph.graph_def.library.function:
        for node in function.node_def:
            if node.op == "MatMul":
                node.attr["transpose_b"].b = True


@CASES.folder("debug_info.pb is damaged")
def garbage_debug_information(directory) -> None:
    (directory / "debug").mkdir()
    (directory / "debug" / "saved_model_debug_info.pb").write_bytes(b"\xff" * 40)


@CASES.folder(LOADED)
def no_tags_and_two_graphs(directory) -> None:
    program = read(directory)
    program.meta_graphs.add().CopyFrom(program.meta_graphs[0])
    for graph in program.meta_graphs:
        del graph.meta_info_def.tags[:]
    write(directory, program)


CASES |= stored.cases(__file__, "failing", globals())
