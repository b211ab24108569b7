"""SavedModels of a few thousand bytes that ask for memory or time without end."""

import stored
from hostile import programs
from tensorflow.core.framework import types_pb2

CASES = programs.Cases()


def _specification(graph):
    return graph.object_graph_def.nodes.add().function.function_spec


def _held(graph):
    """Return the loader's entry for a function."""
    return next(iter(graph.object_graph_def.concrete_functions.values()))


def _called(graph):
    """The function's name as an attribute of a call of it."""
    node = programs.new_call(
        programs.served_function(graph).node_def, "call", programs.new_function(graph, "aside").signature.name
    )
    return node.attr["f"].func


def _held_in_a_constant(graph):
    outer = programs.tensor_of(graph.graph_def.node, "outer")
    outer.dtype = types_pb2.DT_VARIANT
    return outer.variant_val.add().tensors.add()


def _constant(tensor):
    """A huge constant at a place where one may stand."""
    return programs.changed(lambda graph: programs.fill(tensor(graph)))


@CASES.graph("too many bytes")
def shares_of_the_limit_in_different_fields(graph) -> None:
    for number in range(3):
        programs.fill(graph.signature_def["serving_default"].defaults[str(number)], 2**27)
        programs.fill(programs.tensor_of(graph.graph_def.node, f"bomb_{number}"), 2**27)


def _shape(*sizes: int):
    @programs.changed
    def change(graph) -> None:
        shape = programs.new_node(graph.graph_def.node, "shaped", "Placeholder").attr["shape"].shape
        for size in sizes:
            shape.dim.add(size=size)

    return change


@CASES.graph("more than 2^40 elements")
def variable_of_many_elements(graph) -> None:
    node = next(node for node in graph.object_graph_def.nodes if node.HasField("variable"))
    node.variable.shape.dim.add(size=2**41)


@CASES.graph("255 dimensions, more than 254")
def specification_of_many_dimensions(graph) -> None:
    shape = _specification(graph).fullargspec.tensor_spec_value.shape
    for _ in range(255):
        shape.dim.add(size=1)


def _functions(count: int, calls: int):
    """Each function calls the next one so many times."""

    @programs.changed
    def change(graph) -> None:
        programs.new_call(programs.served_function(graph).node_def, "call", "f0")
        for number in range(count):
            nodes = programs.new_function(graph, f"f{number}").node_def
            programs.new_node(nodes, "nothing", "NoOp")
            for call in range(calls if number + 1 < count else 0):
                programs.new_call(nodes, f"call_{call}", f"f{number + 1}")

    return change


@CASES.graph("its graph runs more than 10000000 operations")
def main_graph_that_calls_much(graph) -> None:
    function = programs.new_function(graph, "busy")
    for number in range(4_000):
        programs.new_node(function.node_def, f"n{number}", "NoOp")
        programs.new_call(graph.graph_def.node, f"c{number}", "busy")


@CASES.graph("objects are more than 200 deep")
def objects_in_a_chain(graph) -> None:
    nodes = graph.object_graph_def.nodes
    first = len(nodes)
    nodes[0].children.add(node_id=first, local_name="more")
    for number in range(20_000):
        node = nodes.add()
        node.user_object.identifier = "_generic_user_object"
        if number < 19_999:
            node.children.add(node_id=first + number + 1, local_name="more")


@CASES.graph("more than 200000")
def many_objects(graph) -> None:
    for _ in range(200_001):
        graph.object_graph_def.nodes.add().asset.asset_file_def_index = 0


@CASES.folder("more than 100 graphs")
def many_graphs(directory) -> None:
    program = programs.read(directory)
    for _ in range(100):
        program.meta_graphs.add()
    programs.write(directory, program)


@CASES.graph("too many parts")
def structure_of_100_000_outputs(graph) -> None:
    values = _held(graph).output_signature.list_value.values
    for _ in range(100_000):
        values.add().none_value.SetInParent()


CASES |= stored.cases(__file__, "large", globals())
