"""The compiled hash table of a suffix tree: children by parent and first token, with linear probing."""

from __future__ import annotations

from specdec_plugin_suffix.jit import called, inner
from specdec_plugin_suffix.layout import (
    COUNT,
    PARENT,
    ROOT,
    TOKEN,
    Int32s,
    int64,
)


@inner
def _home(node: int, token: int, mask: int) -> int:
    """Return the first entry of the table for a child."""
    mixed = (node * 0x9E3779B1) ^ (token * 0x85EBCA6B)
    return (mixed ^ (mixed >> 29)) & mask


@inner
def child_of(nodes: Int32s, table: Int32s, node: int, token: int) -> int:
    """Return the child whose label begins with a token; ROOT if there is none."""
    mask = len(table) - 1
    entry = _home(node, token, mask)
    while True:
        child: int = int64(table[entry])
        if child == ROOT or (nodes[child, TOKEN] == token and nodes[child, PARENT] == node):
            return child
        entry = (entry + 1) & mask


@inner
def enter(nodes: Int32s, table: Int32s, node: int) -> None:
    """Add a node to the table."""
    mask = len(table) - 1
    entry = _home(int64(nodes[node, PARENT]), int64(nodes[node, TOKEN]), mask)
    while table[entry] != ROOT:
        entry = (entry + 1) & mask
    table[entry] = node


@inner
def entry_of(nodes: Int32s, table: Int32s, node: int) -> int:
    """Return a node's entry of the table."""
    mask = len(table) - 1
    entry = _home(int64(nodes[node, PARENT]), int64(nodes[node, TOKEN]), mask)
    while table[entry] != node:
        entry = (entry + 1) & mask
    return entry


@inner
def remove(nodes: Int32s, table: Int32s, node: int) -> None:
    """Remove a node from the table."""
    mask = len(table) - 1
    hole = entry = entry_of(nodes, table, node)
    table[hole] = ROOT
    # What was entered further on because this entry was taken moves up, so that no search ends before it.
    while True:
        entry = (entry + 1) & mask
        moved = table[entry]
        if moved == ROOT:
            return
        home = _home(int64(nodes[moved, PARENT]), int64(nodes[moved, TOKEN]), mask)
        if ((entry - home) & mask) >= ((entry - hole) & mask):
            table[hole] = moved
            table[entry] = ROOT
            hole = entry


@called
def enter_all(nodes: Int32s, table: Int32s, end: int) -> None:
    """Fill an empty table `[H]`, of a power of two entries, with the nodes before `end`."""
    for node in range(1, end):
        if nodes[node, COUNT] > 0:
            enter(nodes, table, node)
