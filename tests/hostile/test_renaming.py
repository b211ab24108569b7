"""No name hides an operation from the scan: random programs, and random changes of their names."""

import collections
import random

import pytest
from tensorflow.core.protobuf import meta_graph_pb2

from tfrobust.security import program_graph

PROGRAMS = 1_000
HARMLESS = ("NoOp", "Placeholder", "Relu", "MatMul", "Identity", "StringJoin")
HARMFUL = ("WriteFile", "ReadFile", "PrintV2", "EagerPyFunc", "SaveV2", "SomebodysOwnKernel")
NEW_NAMES = ("", "\0", "()", *"None graph ä NoOp WriteFile f0 f1 n0 x0 ^n0 n0:0".split(), "a" * 300)


def _program(chance: random.Random) -> meta_graph_pb2.MetaGraphDef:
    """A graph and up to five functions; a function calls later ones alone."""
    graph = meta_graph_pb2.MetaGraphDef()
    count = chance.randrange(6)
    for number in range(count):
        function = graph.graph_def.library.function.add()
        function.signature.name = f"f{number}"
        for argument in range(chance.randrange(3)):
            function.signature.input_arg.add(name=f"x{argument}")
        _nodes(function.node_def, chance, range(number + 1, count))
    _nodes(graph.graph_def.node, chance, range(count))
    for number in range(count):
        if chance.random() < 0.3:
            graph.object_graph_def.concrete_functions[f"f{number}"].SetInParent()
    return graph


def _nodes(nodes, chance: random.Random, callable_functions: range) -> None:
    for number in range(chance.randrange(5)):
        node = nodes.add(name=f"n{number}", op=chance.choice(HARMLESS))
        if chance.random() < 0.1:
            node.op = chance.choice(HARMFUL)
        elif callable_functions and chance.random() < 0.5:
            called = f"f{chance.choice(callable_functions)}"
            node.op = chance.choice(("PartitionedCall", called))
            if node.op == "PartitionedCall":
                node.attr["f"].func.name = called
        for _ in range(chance.randrange(3) if number else 0):
            node.input.append(chance.choice(("", "^")) + f"n{chance.randrange(number)}")


def _renamed(program: meta_graph_pb2.MetaGraphDef, chance: random.Random) -> meta_graph_pb2.MetaGraphDef:
    """A copy with one to four new names, of functions, arguments or nodes; sometimes whoever uses one follows."""
    graph = meta_graph_pb2.MetaGraphDef.FromString(program.SerializeToString())
    functions = graph.graph_def.library.function
    named = [*graph.graph_def.node, *(node for function in functions for node in function.node_def)]
    parts = [
        *named,
        *(function.signature for function in functions),
        *(a for f in functions for a in f.signature.input_arg),
    ]
    for part in chance.sample(parts, min(len(parts), chance.randint(1, 4))):
        old, part.name = part.name, chance.choice(NEW_NAMES)
        for node in named if chance.random() < 0.5 else ():
            node.op = part.name if node.op == old else node.op
            if node.attr["f"].func.name == old:
                node.attr["f"].func.name = part.name
            node.input[:] = [source.replace(old, part.name) for source in node.input]
        if chance.random() < 0.2:
            functions.add().signature.name = chance.choice(NEW_NAMES)
    return graph


def _operations(graph: meta_graph_pb2.MetaGraphDef) -> collections.Counter:
    """Count the operations in the file without any names."""
    library = graph.graph_def.library.function
    return collections.Counter(
        node.op for nodes in (graph.graph_def.node, *(f.node_def for f in library)) for node in nodes
    )


def _harm(graph: meta_graph_pb2.MetaGraphDef) -> bool:
    # A saver that nothing reaches may save.
    return any(_operations(graph)[name] for name in HARMFUL if name != "SaveV2")


def test_no_new_name_hides_an_operation():
    chance = random.Random(0)
    passed, refused = 0, 0
    for _ in range(PROGRAMS):
        program = _program(chance)
        renamed = _renamed(program, chance)
        # Its functions call later ones alone.
        assert not any("calls itself" in finding.evidence for finding in program_graph.findings(program))
        for graph in (program, renamed):
            findings = program_graph.findings(graph)
            assert not _harm(graph) or findings
            if not findings:
                seen = program_graph.Program(graph).scopes.values()
                assert collections.Counter(node.op for nodes in seen for node in nodes) == _operations(graph)
                passed += 1
        refused += bool(program_graph.findings(renamed)) and not program_graph.findings(program)
    assert passed > PROGRAMS / 2 and refused > PROGRAMS / 10  # the property is not an empty one


def test_the_scan_counts_what_it_sees(monkeypatch):
    """Without its rules on names, the scan notices that it has seen fewer operations than there are."""
    monkeypatch.setattr(program_graph, "_name_findings", lambda graph: [])
    chance = random.Random(1)
    noticed = 0
    for _ in range(PROGRAMS):
        graph = _renamed(_program(chance), chance)
        try:
            findings = program_graph.findings(graph)
        except RuntimeError as error:
            assert "The scan saw" in str(error)
            noticed += 1
        else:
            assert findings or not _harm(graph)
    assert noticed


def test_nothing_in_a_file_is_the_main_graph():
    graph = meta_graph_pb2.MetaGraphDef()
    graph.graph_def.node.add(name="n", op="WriteFile")
    for name in NEW_NAMES:
        del graph.graph_def.library.function[:]
        graph.graph_def.library.function.add().signature.name = name
        assert program_graph.findings(graph), name
        places = program_graph.Program(graph).scopes
        assert len(places) == 2 and [node.op for nodes in places.values() for node in nodes] == ["WriteFile"]


@pytest.mark.parametrize("name", ["", "f0"])
def test_a_second_function_of_a_name_is_refused(name):
    graph = meta_graph_pb2.MetaGraphDef()
    for operation in ("WriteFile", "NoOp"):
        function = graph.graph_def.library.function.add()
        function.signature.name = name
        function.node_def.add(name="n", op=operation)
    assert "function" in program_graph.findings(graph)[0].evidence


def test_functions_that_call_others_pass():
    graph = meta_graph_pb2.MetaGraphDef()
    for name, called in (("f0", "f1"), ("f1", "f2"), ("f2", "NoOp")):
        function = graph.graph_def.library.function.add()
        function.signature.name = name
        function.node_def.add(name="n", op=called)
    graph.graph_def.node.add(name="n", op="f0")
    assert program_graph.findings(graph) == []
