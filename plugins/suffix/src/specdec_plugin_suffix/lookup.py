"""The compiled part of our suffix trees that drafts."""

from __future__ import annotations

from specdec_plugin_suffix.jit import called, inner
from specdec_plugin_suffix.layout import (
    BLOCK,
    COUNT,
    LENGTH,
    NUM_CHILDREN,
    NUM_TOKENS,
    PARENT,
    PLACE,
    ROOT,
    START,
    TEXT_BEGIN,
    TEXT_SIZE,
    WORDS,
    Int32s,
    Int64s,
    int64,
)
from specdec_plugin_suffix.table import child_of

ROUNDING = 1e-6
"""A match times a factor may be this much too short for another token."""


@inner
def _draft(
    nodes: Int32s,
    blocks: Int32s,
    text: Int32s,
    node: int,
    offset: int,
    most: int,
    least: float,
    is_tree: bool,
    found: Int64s,
    open_nodes: Int64s,
) -> tuple[int, int]:
    """Write the likeliest nodes after a match to `found[1]`; return the sum of their counts, and how many they are.

    Args:
        nodes: as all arrays, as for `look_up`.
        blocks: the children of each node.
        text: the tokens of the labels.
        node: the match ends on its label,
        offset: after so many tokens.
        most: the most nodes.
        least: the least share of the match's occurrences.
        is_tree: the likeliest nodes; else the likeliest path.
        found: where to write.
        open_nodes: space for what may be taken next.
    """
    total = nodes[node, COUNT]
    mask = len(text) - 1
    num_open, num_found, num_expected = 0, 0, 0
    parent = -1
    while True:
        # What follows the last token: the rest of its label, or its likeliest child.
        if offset == nodes[node, LENGTH]:
            offset = 0
            num_children = nodes[node, NUM_CHILDREN]
            node = int64(blocks[nodes[node, BLOCK] + 1]) if num_children > 0 else int64(ROOT)
        if node != ROOT and nodes[node, COUNT] / total >= least:
            open_nodes[num_open, 0] = nodes[node, COUNT]
            open_nodes[num_open, 1] = node
            open_nodes[num_open, 2] = offset
            open_nodes[num_open, 3] = parent
            num_open += 1
        if num_open == 0 or num_found == most:
            return num_expected, num_found
        best = 0
        for index in range(1, num_open):
            if open_nodes[index, 0] > open_nodes[best, 0]:
                best = index
        count = open_nodes[best, 0]
        node = open_nodes[best, 1]
        offset = open_nodes[best, 2]
        found[1, 0, num_found] = text[(nodes[node, START] + offset) & mask]
        found[1, 1, num_found] = open_nodes[best, 3]
        found[1, 2, num_found] = count
        num_expected += count
        parent = num_found
        num_found += 1
        # The next likely sibling takes its place, if there is one, else the last open node does.
        sibling = int64(ROOT)
        if is_tree and offset == 0:
            above = nodes[node, PARENT]
            place = nodes[node, PLACE] + 1
            if place < nodes[above, NUM_CHILDREN]:
                sibling = int64(blocks[nodes[above, BLOCK] + 1 + place])
        if sibling != ROOT and nodes[sibling, COUNT] / total >= least:
            open_nodes[best, 0] = nodes[sibling, COUNT]
            open_nodes[best, 1] = sibling
        else:
            num_open -= 1
            for field in range(4):
                open_nodes[best, field] = open_nodes[num_open, field]
        offset += 1


@called
def look_up(
    state: Int64s,
    nodes: Int32s,
    table: Int32s,
    blocks: Int32s,
    text: Int32s,
    own_state: Int64s,
    own_text: Int32s,
    is_own: bool,
    max_nodes: int,
    factor: float,
    least: float,
    is_tree: bool,
    best: float,
    found: Int64s,
    open_nodes: Int64s,
) -> tuple[float, int, int]:
    """Find the draft with the most expected tokens, over the matches of all lengths.

    Args:
        state: of the tree, and its arrays as for `kernels.append`.
        nodes: the nodes.
        table: the children by token.
        blocks: the children by count.
        text: the tokens.
        own_state: of the request's own tree, whose text ends with what is matched.
        own_text: its tokens.
        is_own: the tree is the request's own.
        max_nodes: the most tokens to draft.
        factor: the most tokens drafted per token matched.
        least: the least probability of a path.
        is_tree: draft the likeliest nodes; else the likeliest path.
        best: expected tokens of another draft, which a draft must exceed.
        found: `[2, 3, max_nodes or more]` output: `found[0]` are the tokens of the draft, their parents (-1: the match) and the
            counts of their paths.
        open_nodes: `[max_nodes + 2 or more, 4]` for intermediate results.

    Returns:
        the number of expected tokens, `best` if no draft has more; the number of drafted tokens; and the count of the match.
    """
    depth = len(state) - WORDS
    num_tokens = own_state[NUM_TOKENS]
    end = own_state[TEXT_BEGIN] + own_state[TEXT_SIZE]
    longest = min(num_tokens, depth) - 1
    num_best, total = 0, 1
    for turn in range(longest):
        # In the own tree every length matches; elsewhere no length does that is longer than one that does not.
        length = longest - turn if is_own else turn + 1
        most = int(min(float(max_nodes), length * factor + ROUNDING))
        if most <= best:  # it expects no more than all of them
            continue
        if is_own:
            node = state[WORDS + (num_tokens - length) % depth]
            offset = int64(nodes[node, LENGTH])
        else:
            node, offset = int64(ROOT), int64(0)
            index = end - length
            while index < end:
                token = int64(own_text[index & (len(own_text) - 1)])
                if offset == nodes[node, LENGTH]:
                    node, offset = child_of(nodes, table, node, token), 0
                    if node == ROOT:
                        break
                elif text[(nodes[node, START] + offset) & (len(text) - 1)] != token:
                    break
                offset += 1
                index += 1
            if index < end:
                break
        num_expected, num_found = _draft(
            nodes, blocks, text, node, offset, most, least, is_tree, found, open_nodes
        )
        expected = num_expected / nodes[node, COUNT]
        if expected > best:
            best, num_best, total = expected, num_found, nodes[node, COUNT]
            for field in range(3):
                for index in range(num_found):
                    found[0, field, index] = found[1, field, index]
    return best, num_best, total
