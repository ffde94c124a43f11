"""Our suffix trees: what they count, what they keep, and that a compiler is not needed for it."""

import os
import subprocess
import sys
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_plugin_suffix import cache, layout, suffix_tree, table
from specdec_plugin_suffix.request import Rules
from specdec_plugin_suffix.suffix_tree import SuffixTree, TreeCache

TEXT = st.lists(st.integers(0, 2), min_size=1, max_size=40)


def words(texts: list[list[int]], depth: int) -> Counter[tuple[int, ...]]:
    """Return how often each word of up to `depth` tokens occurs."""
    return Counter(
        tuple(text[start : start + size])
        for text in texts
        for start in range(len(text))
        for size in range(1, min(depth, len(text) - start) + 1)
    )


def is_found(tree: SuffixTree, node: int) -> bool:
    """Return whether a search of the table comes to a node before it comes to an empty entry."""
    home = getattr(table._home, "py_func", table._home)  # compiled, it is for compiled functions alone
    mask, (parent, token) = len(tree.table) - 1, tree.nodes[node, [layout.PARENT, layout.TOKEN]].tolist()
    entry = home(parent, token, mask)
    while tree.table[entry] not in (node, layout.ROOT):
        entry = (entry + 1) & mask
    return bool(tree.table[entry] == node)


def counted(tree: SuffixTree) -> Counter[tuple[int, ...]]:
    """Return the words of a tree, and check how it holds them."""
    found, mask = Counter[tuple[int, ...]](), len(tree.text) - 1
    end = int(tree.state[layout.NODES_END])
    nodes = tree.nodes[:end].tolist()
    used = [node for node in range(1, end) if nodes[node][layout.COUNT]]
    children: dict[int, list[int]] = {node: [] for node in [layout.ROOT, *used]}
    for node in used:
        children[nodes[node][layout.PARENT]].append(node)
    assert tree.num_nodes == len(used)
    assert sorted(filter(None, tree.table.tolist())) == used
    open_nodes: list[tuple[int, tuple[int, ...]]] = [(layout.ROOT, ())]
    while open_nodes:
        node, word = open_nodes.pop()
        counts = [nodes[child][layout.COUNT] for child in children[node]]
        if node != layout.ROOT:
            num_here = nodes[node][layout.COUNT] - sum(counts)
            assert num_here > 0 or (num_here == 0 and len(counts) > 1)  # else there would be no node here
            block, num_children = nodes[node][layout.BLOCK], nodes[node][layout.NUM_CHILDREN]
            kept = tree.blocks[block + 1 : block + 1 + num_children].tolist() if num_children else []
            assert sorted(kept) == children[node]
            assert [nodes[child][layout.COUNT] for child in kept] == sorted(counts, reverse=True)
            assert [nodes[child][layout.PLACE] for child in kept] == list(range(num_children))
        for child in children[node]:
            start, length = nodes[child][layout.START], nodes[child][layout.LENGTH]
            label = [int(tree.text[(start + index) & mask]) for index in range(length)]
            assert label[0] == nodes[child][layout.TOKEN]
            assert is_found(tree, child)
            for size in range(1, length + 1):
                found[(*word, *label[:size])] = nodes[child][layout.COUNT]
            open_nodes.append((child, (*word, *label)))
    return found


@settings(max_examples=100, deadline=None)
@given(
    depth=st.integers(1, 6),
    changes=st.lists(st.one_of(st.none(), st.tuples(st.booleans(), TEXT)), max_size=12),
)
def test_a_tree_counts_all_words(depth: int, changes: list[tuple[bool, list[int]] | None]) -> None:
    """After every change: None forgets the oldest text, others begin a text or append to the newest."""
    tree, texts = SuffixTree(depth), list[list[int]]()
    for change in changes:
        if change is None:
            if texts:
                tree.forget(len(texts.pop(0)))
                if not texts:
                    tree.begin()
        else:
            if change[0] or not texts:
                tree.begin()
                texts.append([])
            texts[-1] += change[1]
            tree.append(np.array(change[1], dtype=np.int32))
        assert counted(tree) == words(texts, depth)


def random_text(size: int, num_tokens: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(num_tokens, size=size).tolist()


def test_texts_that_come_and_go_take_no_more_and_more_memory() -> None:
    """Text, table and blocks grow, and the text goes around the end of its array many times."""
    tree, texts, sizes = SuffixTree(8), list[list[int]](), list[int]()
    for turn in range(60):
        texts.append(random_text(100 + 37 * (turn % 5), 3 + turn % 4 * 50, turn))
        tree.begin()
        tree.append(np.array(texts[-1], dtype=np.int32))
        if len(texts) > 4:
            tree.forget(len(texts.pop(0)))
        sizes.append(tree.num_bytes)
    assert counted(tree) == words(texts, 8)
    assert max(sizes[30:]) <= 1.1 * max(sizes[:30])
    for text in texts:
        tree.forget(len(text))
    assert tree.num_nodes == tree.state[layout.TEXT_SIZE] == 0


@pytest.mark.parametrize(
    ("text", "most_nodes"),
    [
        ([7] * 100_000, 24),
        ([1, 2, 3] * 30_000, 3 * 24),
        ([token for each in range(30_000) for token in (7, 100 + each)], 61_000),
        (random_text(50_000, 2, 0), 100_000),
    ],
    ids=["one token", "three tokens", "one token before every other", "two tokens at random"],
)
def test_no_text_takes_more_than_two_nodes_for_a_token(text: list[int], most_nodes: int) -> None:
    tree = SuffixTree(24)
    tree.append(np.array(text, dtype=np.int32))
    assert tree.num_nodes <= most_nodes
    assert tree.num_bytes <= 140 * len(text)
    tree.forget(len(text))
    assert tree.num_nodes == 0


def test_the_own_text_goes_before_responses_that_promise_as_much() -> None:
    made, rules = TreeCache(8), Rules(1.0, 0.1, False)
    made.start_request("a")
    made.append("a", [1, 2, 1])
    for token in (5, 6):
        made.append_response([9, 1, token], is_first=True, is_last=True)
    assert made.speculate("a", 4, rules).token_ids == [2]
    made.append_response([8, 1, 5], is_first=True, is_last=True)
    assert made.speculate("a", 4, rules).token_ids == [5]


PLAIN = """
import sys, warnings
warnings.simplefilter("error")
if sys.argv[1] == "missing":
    sys.modules["numba"] = None
from specdec_plugin_suffix import cache
cache.has_arctic = lambda: False
print(cache.implementation())
made = cache.make_cache(24)
made.start_request("a")
for number in range(20):
    text = [token * 49151 % (97 + number) for token in range(150)]
    made.append_response(text, is_first=True, is_last=True)
    if number > 3:
        made.evict_response()
made.append("a", [2_000_000_000] * 30 + text[:40])
from specdec_plugin_suffix.request import Rules
for is_tree in (False, True):
    draft = made.speculate("a", 12, Rules(2.0, 0.01, is_tree))
    print(draft.token_ids, draft.parents, draft.probs)
"""


def output_of(mode: str, **variables: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PLAIN, mode],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | variables,
    )
    return done.stdout.splitlines()


def test_without_numba_drafts_are_the_same() -> None:
    """Where it is disabled, and where it is not installed, which is said."""
    compiled, disabled, missing = (
        output_of(mode, **variables)
        for mode, variables in (("", {}), ("", {"NUMBA_DISABLE_JIT": "1"}), ("missing", {}))
    )
    assert compiled[1:] == disabled[1:] == missing[1:]
    assert len(compiled[1]) > 100
    assert compiled[0] == "specdec's own suffix trees, compiled by numba"
    assert missing[0].startswith("specdec's own suffix trees in plain Python")
    assert missing[0].endswith("numba is not installed")


def test_a_library_that_cannot_be_imported_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(name: str) -> None:
        raise ImportError(f"{name}: undefined symbol")

    monkeypatch.setattr(cache, "find_spec", lambda name: name)
    monkeypatch.setattr(cache, "import_module", refuse)
    assert cache.find_arctic() is False
    assert "cannot be imported (arctic_inference.suffix_decoding: undefined symbol)" in caplog.text


def test_at_load_all_runs_that_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a request would wait for the compiler."""
    run = set[str]()

    def noted(name: str, function: Any) -> Any:
        def call(*given: Any) -> Any:
            run.add(name)
            return function(*given)

        return call

    compiled = {name for name, value in vars(suffix_tree).items() if hasattr(value, "py_func")}
    for name in compiled:
        monkeypatch.setattr(suffix_tree, name, noted(name, getattr(suffix_tree, name)))
    monkeypatch.setattr(cache, "has_arctic", lambda: False)
    cache.compile_all(24)
    assert run == compiled >= {"append", "enter_all", "forget", "look_up"}
