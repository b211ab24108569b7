"""SavedModels that hide what they do behind names: empty ones, the same twice, marks of outputs and control inputs."""

import pathlib

from hostile.programs import changed, new_call, new_function, new_node, served_function, text_node


def _writes(nodes, output: str = "") -> None:
    text_node(nodes, "canary_path", "/tmp/canary")
    new_node(nodes, "canary", "WriteFile", [f"canary_path{output}", f"canary_path{output}"])


def _run_by_the_graph(graph) -> None:
    """Whoever asks the model runs `canary` in the main graph."""
    name = served_function(graph).signature.name
    next(node for node in graph.graph_def.node if node.attr["f"].func.name == name).input.append("^canary")


@changed
def function_without_a_name_beside_a_writing_graph(graph) -> None:
    _writes(graph.graph_def.node)
    _run_by_the_graph(graph)
    new_function(graph, "")


@changed
def served_function_that_writes_and_one_without_a_name(graph) -> None:
    _writes(served_function(graph).node_def, ":output:0")
    new_function(graph, "")


def model_of_tensorflow_1(directory: pathlib.Path) -> None:
    """The same in the older format, whose main graph is all there is."""

    def change(graph) -> None:
        _writes(graph.graph_def.node)
        _run_by_the_graph(graph)
        graph.ClearField("object_graph_def")
        new_function(graph, "")

    changed(change)(directory)


@changed
def function_twice_and_the_first_writes(graph) -> None:
    _writes(new_function(graph, "aside").node_def, ":output:0")
    new_function(graph, "aside")
    new_call(served_function(graph).node_def, "call", "aside")


@changed
def node_without_a_name(graph) -> None:
    new_node(graph.graph_def.node, "", "NoOp")


@changed
def node_of_a_function_without_a_name(graph) -> None:
    new_node(served_function(graph).node_def, "", "NoOp")


@changed
def node_of_a_function_twice(graph) -> None:
    for _ in range(2):
        new_node(served_function(graph).node_def, "twice", "NoOp")


@changed
def argument_without_a_name(graph) -> None:
    new_function(graph, "aside").signature.input_arg.add()


@changed
def argument_twice(graph) -> None:
    function = new_function(graph, "aside")
    for _ in range(2):
        function.signature.input_arg.add(name="twice")


@changed
def node_named_as_an_argument(graph) -> None:
    """The argument is an asset's name, the node is not."""
    function = served_function(graph)
    text_node(function.node_def, function.signature.input_arg[0].name, "/etc/passwd")


@changed
def node_named_as_an_output(graph) -> None:
    nodes = served_function(graph).node_def
    text_node(nodes, "words", "a")
    text_node(nodes, "words:output", "/etc/passwd")


@changed
def node_named_as_a_control_input(graph) -> None:
    new_node(graph.graph_def.node, "^after", "NoOp")


@changed
def signature_that_is_called_run_once(graph) -> None:
    """A server would read the file of the constant's name when it answers, by a signature that only looks like one of
    TensorFlow's own."""
    text_node(graph.graph_def.node, "words", "/etc/passwd")
    graph.asset_file_def.add(filename="words.txt").tensor_info.name = "words:0"
    new_node(graph.graph_def.node, "canary", "InitializeTableFromTextFileV2", ["words", "words"])
    signature = graph.signature_def["__saved_model_mine"]
    signature.outputs["found"].name = "canary:0"


def run_once(directory: pathlib.Path) -> None:
    (directory / "assets").mkdir(exist_ok=True)
    (directory / "assets" / "words.txt").write_text("a\n")
    signature_that_is_called_run_once(directory)


# What makes it -> a part of the line it is refused with.
CASES = {
    function_without_a_name_beside_a_writing_graph: "a function has no name",
    served_function_that_writes_and_one_without_a_name: "a function has no name",
    model_of_tensorflow_1: "a function has no name",
    function_twice_and_the_first_writes: "'aside' stands twice",
    node_without_a_name: "a node of the graph has no name",
    node_of_a_function_without_a_name: "a node or argument of function .* has no name",
    node_of_a_function_twice: "'twice' stands twice",
    argument_without_a_name: "a node or argument of function 'aside' has no name",
    argument_twice: "'twice' stands twice",
    node_named_as_an_argument: "stands twice",
    node_named_as_an_output: "has ':' or '\\^' in its name",
    node_named_as_a_control_input: "has ':' or '\\^' in its name",
    run_once: "not one of its assets",
}
