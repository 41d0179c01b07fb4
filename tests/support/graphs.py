"""The nodes of traced functions."""

from __future__ import annotations


def nodes_of(function):
    """Return the nodes of a concrete function, and of all functions that it calls."""
    graph = function.graph.as_graph_def()
    bodies = {each.signature.name: each.node_def for each in graph.library.function}
    nodes = [*graph.node, *(node for body in bodies.values() for node in body)]
    return [node for node in nodes if node.op not in bodies]
