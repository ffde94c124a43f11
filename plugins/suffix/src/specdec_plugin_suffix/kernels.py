"""The compiled part of our suffix trees: append a token, forget a text, look up a draft.

A word is the text from one position on, at most as long as the tree is deep; the tree holds the word of every position. Edges
are compressed: a node stands for the label between its parent and itself, a piece of `text`. Every word ends at a node, so all
places of a label occur equally often, and a node has one child only where a word ends.

While a text grows, its last words grow with it. `state` holds the node at which each of them ends, so a new token moves each
by one place and nothing is searched from the root. A word that passes through a node lets its label point to the newest
text. Texts therefore can only be forgotten oldest first: no node that stays points to a forgotten one.

Children are found by a hash table over (parent, first token), and are kept in a block per node, most frequent first: a count
that grows by one swaps its node with the first one of the same count, which a binary search finds.
"""

from __future__ import annotations

from specdec_plugin_suffix.jit import called, inner
from specdec_plugin_suffix.layout import (
    BLOCK,
    BLOCKS,
    BLOCKS_END,
    COUNT,
    FREE_BLOCKS,
    FREE_NODE,
    LACKING,
    LENGTH,
    NODES,
    NODES_END,
    NOTHING,
    NUM_CHILDREN,
    NUM_GROWN,
    NUM_NODES,
    NUM_TOKENS,
    PARENT,
    PLACE,
    ROOT,
    SMALLEST_BLOCK,
    START,
    TABLE,
    TEXT,
    TEXT_BEGIN,
    TEXT_SIZE,
    TOKEN,
    WORDS,
    Int32s,
    Int64s,
    int64,
)
from specdec_plugin_suffix.table import child_of, enter, entry_of, remove


@inner
def _new_node(state: Int64s, nodes: Int32s, parent: int, start: int, token: int, count: int) -> int:
    """Return a node with a label of one token."""
    node: int = state[FREE_NODE]
    if node != ROOT:
        state[FREE_NODE] = nodes[node, PARENT]
    else:
        node = state[NODES_END]
        state[NODES_END] += 1
    state[NUM_NODES] += 1
    nodes[node, COUNT] = count
    nodes[node, PARENT] = parent
    nodes[node, START] = start
    nodes[node, LENGTH] = 1
    nodes[node, TOKEN] = token
    nodes[node, BLOCK] = -1
    nodes[node, NUM_CHILDREN] = 0
    return node


@inner
def _size_class(size: int) -> int:
    """Return where `state` has the free blocks of a size."""
    place = FREE_BLOCKS
    while size > SMALLEST_BLOCK:
        size >>= 1
        place += 1
    return place


@inner
def _free_block(state: Int64s, blocks: Int32s, block: int) -> None:
    """Free a block; -1 is none."""
    if block >= 0:
        place = _size_class(int64(blocks[block]))
        blocks[block + 1] = state[place]
        state[place] = block


@inner
def _free_node(state: Int64s, nodes: Int32s, blocks: Int32s, node: int) -> None:
    """Free a node, which the table no longer has, and its block."""
    _free_block(state, blocks, int64(nodes[node, BLOCK]))
    nodes[node, COUNT] = 0
    nodes[node, PARENT] = state[FREE_NODE]
    state[FREE_NODE] = node
    state[NUM_NODES] -= 1


@inner
def _attach(state: Int64s, nodes: Int32s, blocks: Int32s, node: int) -> None:
    """Make a node the last of its parent's children: one with a count of 1, or an only child."""
    parent = int64(nodes[node, PARENT])
    if parent == ROOT:
        return
    num_children = nodes[parent, NUM_CHILDREN]
    block = int64(nodes[parent, BLOCK])
    size = int64(0) if block < 0 else int64(blocks[block])
    if num_children + 1 >= size:
        wanted = max(int64(SMALLEST_BLOCK), 2 * size)
        place = _size_class(wanted)
        larger = state[place]
        if larger >= 0:
            state[place] = blocks[larger + 1]
        else:
            larger = state[BLOCKS_END]
            state[BLOCKS_END] += wanted
        for index in range(1, num_children + 1):
            blocks[larger + index] = blocks[block + index]
        blocks[larger] = wanted
        _free_block(state, blocks, block)
        nodes[parent, BLOCK] = larger
        block = larger
    blocks[block + 1 + num_children] = node
    nodes[node, PLACE] = num_children
    nodes[parent, NUM_CHILDREN] = num_children + 1


@inner
def _increment(nodes: Int32s, blocks: Int32s, node: int) -> None:
    """Add 1 to a node's count; it changes places with the first sibling that had as many."""
    count = nodes[node, COUNT]
    nodes[node, COUNT] = count + 1
    parent = nodes[node, PARENT]
    if parent == ROOT:
        return
    first, place = nodes[parent, BLOCK] + 1, nodes[node, PLACE]
    low, high = 0, place
    if place > 0 and nodes[blocks[first + place - 1], COUNT] != count:
        low = place
    while low < high:
        middle = (low + high) >> 1
        if nodes[blocks[first + middle], COUNT] > count:
            low = middle + 1
        else:
            high = middle
    if low != place:
        _swap(nodes, blocks, first + low, first + place)


@inner
def _decrement(nodes: Int32s, blocks: Int32s, node: int) -> None:
    """Take 1 from a node's count; it changes places with the last sibling that had as many."""
    count = nodes[node, COUNT]
    nodes[node, COUNT] = count - 1
    parent = nodes[node, PARENT]
    if parent == ROOT:
        return
    first, place = nodes[parent, BLOCK] + 1, nodes[node, PLACE]
    low, high = place, nodes[parent, NUM_CHILDREN] - 1
    if place < high and nodes[blocks[first + place + 1], COUNT] != count:
        high = place
    while low < high:
        middle = (low + high + 1) >> 1
        if nodes[blocks[first + middle], COUNT] < count:
            high = middle - 1
        else:
            low = middle
    if low != place:
        _swap(nodes, blocks, first + low, first + place)


@inner
def _swap(nodes: Int32s, blocks: Int32s, one: int, other: int) -> None:
    """Let two children of a node change places in its block."""
    blocks[one], blocks[other] = blocks[other], blocks[one]
    place = nodes[blocks[one], PLACE]
    nodes[blocks[one], PLACE] = nodes[blocks[other], PLACE]
    nodes[blocks[other], PLACE] = place


@inner
def _take_place(nodes: Int32s, table: Int32s, blocks: Int32s, node: int, other: int) -> None:
    """Let another node have a node's parent, and its place in table and block."""
    table[entry_of(nodes, table, node)] = other
    parent = nodes[node, PARENT]
    nodes[other, PARENT] = parent
    nodes[other, PLACE] = nodes[node, PLACE]
    if parent != ROOT:
        blocks[nodes[parent, BLOCK] + 1 + nodes[node, PLACE]] = other


@inner
def _shorten(nodes: Int32s, text: Int32s, node: int) -> None:
    """Take the first token from a label."""
    start = (nodes[node, START] + 1) & (len(text) - 1)
    nodes[node, START] = start
    nodes[node, LENGTH] -= 1
    nodes[node, TOKEN] = text[start]


@inner
def _merge(
    state: Int64s, nodes: Int32s, table: Int32s, blocks: Int32s, text: Int32s, node: int, child: int
) -> None:
    """Remove a node at which no word ends any more; its only child, which occurs as often, gets its label too."""
    remove(nodes, table, child)
    _take_place(nodes, table, blocks, node, child)
    nodes[child, TOKEN] = nodes[node, TOKEN]
    nodes[child, START] = (nodes[child, START] - nodes[node, LENGTH]) & (len(text) - 1)
    nodes[child, LENGTH] += nodes[node, LENGTH]
    _free_node(state, nodes, blocks, node)


@inner
def _advance(
    state: Int64s,
    nodes: Int32s,
    table: Int32s,
    blocks: Int32s,
    text: Int32s,
    node: int,
    token: int,
    position: int,
) -> int:
    """Let a word that ends at a node, not alone, grow by a token at `text[position]`; return the node where it ends then."""
    count = nodes[node, COUNT]
    num_children = nodes[node, NUM_CHILDREN]
    child: int = int64(ROOT)
    if node == ROOT or num_children > 0:
        child = child_of(nodes, table, node, token)
    if child == ROOT:
        child = _new_node(state, nodes, node, position, token, int64(1))
        enter(nodes, table, child)
        _attach(state, nodes, blocks, child)
        return child
    is_only_for_this = node != ROOT and num_children == 1 and count == nodes[child, COUNT] + 1
    if nodes[child, LENGTH] == 1:
        _increment(nodes, blocks, child)
        nodes[child, START] = position
        if is_only_for_this:
            _merge(state, nodes, table, blocks, text, node, child)
        return child
    if is_only_for_this:  # it moves down the edge
        remove(nodes, table, child)
        nodes[node, LENGTH] += 1
        nodes[node, START] = (position + 1 - nodes[node, LENGTH]) & (len(text) - 1)
        _shorten(nodes, text, child)
        enter(nodes, table, child)
        return node
    middle = _new_node(state, nodes, node, position, token, int64(nodes[child, COUNT]))
    _take_place(nodes, table, blocks, child, middle)
    nodes[child, PARENT] = middle
    _shorten(nodes, text, child)
    enter(nodes, table, child)
    _attach(state, nodes, blocks, child)
    _increment(nodes, blocks, middle)
    return middle


@inner
def _lacking(state: Int64s, nodes: Int32s, table: Int32s, blocks: Int32s, node: int) -> int:
    """Return which array may be too small for `_advance`."""
    if state[FREE_NODE] == ROOT and state[NODES_END] + 1 > len(nodes):
        return NODES
    if 3 * (state[NUM_NODES] + 1) > 2 * len(table):
        return TABLE
    block = nodes[node, BLOCK]
    size = 0 if block < 0 else 2 * blocks[block]
    return BLOCKS if state[BLOCKS_END] + size + SMALLEST_BLOCK > len(blocks) else NOTHING


@called
def append(
    state: Int64s, nodes: Int32s, table: Int32s, blocks: Int32s, text: Int32s, token_ids: Int32s, first: int
) -> int:
    """Append tokens to the growing text until an array is too small; then call again with what is left.

    Args:
        state: `[WORDS + depth]`.
        nodes: `[N, NUM_NODE_FIELDS]`.
        table: `[H]`, a power of two.
        blocks: `[C]`.
        text: `[T]`, a power of two: tokens of all texts, oldest first, from `state[TEXT_BEGIN]` on and around the end.
        token_ids: `[M]` the new tokens.
        first: the first that is not appended yet.

    Returns:
        the number of appended tokens with those before `first`; if not all, `state[LACKING]` is the array that must grow.
    """
    depth = len(state) - WORDS
    for index in range(first, len(token_ids)):
        if state[TEXT_SIZE] == len(text):
            state[LACKING] = TEXT
            return index
        token = int64(token_ids[index])
        position = (state[TEXT_BEGIN] + state[TEXT_SIZE]) & (len(text) - 1)
        text[position] = token
        num_tokens = state[NUM_TOKENS]
        # The shortest word first: a word then leaves a node only after the next shorter one has come to it.
        for length in range(state[NUM_GROWN], min(num_tokens, depth - 1) + 1):
            place = WORDS + (num_tokens - length) % depth
            node = int64(ROOT) if length == 0 else int64(state[place])
            if nodes[node, NUM_CHILDREN] == 0 and nodes[node, COUNT] == 1:  # only this word is there
                nodes[node, LENGTH] += 1
                continue
            lacking = _lacking(state, nodes, table, blocks, node)
            if lacking != NOTHING:
                state[LACKING], state[NUM_GROWN] = lacking, length
                return index
            state[place] = _advance(state, nodes, table, blocks, text, node, token, position)
        state[NUM_GROWN] = 0
        state[NUM_TOKENS] = num_tokens + 1
        state[TEXT_SIZE] += 1
    return len(token_ids)


@called
def forget(
    state: Int64s, nodes: Int32s, table: Int32s, blocks: Int32s, text: Int32s, num_tokens: int
) -> None:
    """Remove the words of the oldest text, which has `num_tokens` tokens and grows no more; arrays as for `append`."""
    depth, mask = len(state) - WORDS, len(text) - 1
    begin = state[TEXT_BEGIN]
    for start in range(num_tokens):
        rest = min(depth, num_tokens - start)
        node, length = int64(ROOT), 0
        while length < rest:
            child = child_of(nodes, table, node, int64(text[(begin + start + length) & mask]))
            _decrement(nodes, blocks, child)
            if nodes[child, COUNT] == 0:  # the last of the siblings, and with it what is below
                if node != ROOT:
                    nodes[node, NUM_CHILDREN] -= 1
                while True:
                    below = (
                        int64(ROOT)
                        if nodes[child, NUM_CHILDREN] == 0
                        else int64(blocks[nodes[child, BLOCK] + 1])
                    )
                    remove(nodes, table, child)
                    _free_node(state, nodes, blocks, child)
                    if below == ROOT:
                        break
                    child = below
                break
            node = child
            length += nodes[child, LENGTH]
        if node != ROOT and nodes[node, NUM_CHILDREN] == 1:
            child = int64(blocks[nodes[node, BLOCK] + 1])
            if nodes[child, COUNT] == nodes[node, COUNT]:
                _merge(state, nodes, table, blocks, text, node, child)
    state[TEXT_BEGIN] = (begin + num_tokens) & mask
    state[TEXT_SIZE] -= num_tokens
