"""`paged_attention` against plain Python: the reference everywhere, the kernels under the interpreter and on a GPU."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from kernelcheck import NAN, check_close, in_order

from specdec_kernels.triton.paged_attention import pack_tree_mask, paged_attention
from specdec_kernels.triton.paged_attention.config import LaunchConfig

PADDING = 777.0
"""What rows of padding hold before, and must hold after."""


@dataclass
class Scene:
    """Requests with their caches; everything outside their contexts is NaN."""

    rows: list[int]
    contexts: list[int]
    heads: tuple[int, int] = (4, 2)
    dims: tuple[int, int] = (24, 24)
    block_size: int = 16
    padding: int = 0
    dtype: torch.dtype = torch.float32
    seed: int = 0
    trees: dict[int, list[int]] = field(default_factory=dict)
    """Parents of the rows of requests that are trees; -1 for the root."""

    def __post_init__(self) -> None:
        self.draw = torch.Generator().manual_seed(self.seed)
        num_rows = sum(self.rows) + self.padding
        self.query = self.random(num_rows, self.heads[0], self.dims[0])
        self.query[num_rows - self.padding :] = NAN
        blocks = [-(-length // self.block_size) for length in self.contexts]
        pages = torch.randperm(sum(blocks) + 2, generator=self.draw).tolist()
        shape = (len(pages), self.block_size, self.heads[1])
        self.keys = torch.full((*shape, self.dims[0]), NAN, dtype=self.dtype)
        self.values = torch.full((*shape, self.dims[1]), NAN, dtype=self.dtype)
        self.tables = torch.full((len(blocks), max(blocks) + 1), 2**30)
        for b, length in enumerate(self.contexts):
            table = torch.tensor([pages.pop() for _ in range(blocks[b])], dtype=torch.int64)
            self.tables[b, : blocks[b]] = table
            index = torch.arange(length)
            place = table[index // self.block_size], index % self.block_size
            self.keys[place] = self.random(length, self.heads[1], self.dims[0])
            self.values[place] = self.random(length, self.heads[1], self.dims[1])
        self.starts = torch.tensor([0, *np.cumsum(self.rows)])
        self.lengths = torch.tensor(self.contexts)

    def random(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=self.draw).to(self.dtype)

    def tree_options(self) -> dict[str, torch.Tensor]:
        """`tree_mask` and `positions`."""
        width = max(len(parents) for parents in self.trees.values())
        visible = torch.ones(self.query.shape[0], width, dtype=torch.bool)
        positions = torch.full((self.query.shape[0],), -(10**6))
        for b, count in enumerate(self.rows):
            for i in range(count):
                row = int(self.starts[b]) + i
                path = self.path(b, i)
                positions[row] = self.contexts[b] - count + len(path) - 1
                if b in self.trees:
                    visible[row] = False
                    visible[row, path] = True
        return {"tree_mask": pack_tree_mask(visible), "positions": positions}

    def path(self, request: int, row: int) -> list[int]:
        """The rows of this pass that a row sees, itself included."""
        if request not in self.trees:
            return list(range(row + 1))
        path = []
        while row >= 0:
            path.append(row)
            row = self.trees[request][row]
        return path[::-1]

    def inputs(self, device: torch.device) -> list[torch.Tensor]:
        tensors = (self.query, self.keys, self.values, self.tables, self.starts, self.lengths)
        return [tensor.to(device) for tensor in tensors]

    def naive(
        self,
        dtype: torch.dtype,
        *,
        scale=1.0,
        window=None,
        softcap=None,
        sinks=None,
        is_causal=True,
        product=torch.matmul,
    ) -> torch.Tensor:
        """What `paged_attention` promises, one request and head at a time, every operation in `dtype`."""
        out = torch.full((self.query.shape[0], self.heads[0], self.dims[1]), NAN, dtype=dtype)
        for b, count in enumerate(self.rows):
            rows = slice(int(self.starts[b]), int(self.starts[b]) + count)
            committed, index = self.contexts[b] - count, torch.arange(self.contexts[b])
            place = self.tables[b][index // self.block_size], index % self.block_size
            hidden = torch.ones(count, len(index), dtype=torch.bool)
            for i in range(count):
                own = self.path(b, i) if is_causal else range(count)
                seen = list(range(committed)) + [committed + node for node in own]
                hidden[i, seen if window is None else seen[-window:]] = (
                    False  # one for each position, in order
                )
            for head in range(self.heads[0]):
                kv_head = head // (self.heads[0] // self.heads[1])
                keys = self.keys[place][:, kv_head].to(dtype)
                scores = product(self.query[rows, head].to(dtype), keys.T) * scale
                if softcap is not None:
                    scores = softcap * torch.tanh(scores / softcap)
                scores = scores.masked_fill(hidden, -torch.inf)
                if sinks is not None:
                    scores = torch.cat((scores, sinks[head].to(dtype).expand(count, 1)), 1)
                weights = torch.softmax(scores, 1)[:, : len(index)]
                out[rows, head] = product(weights, self.values[place][:, kv_head].to(dtype))
        return out


def check(scene: Scene, device: torch.device, config=None, **options) -> torch.Tensor:
    """Run into a poisoned output and compare with `naive`."""
    options = {"scale": scene.dims[0] ** -0.5} | options
    exact = scene.naive(torch.float64, **options)
    orders = [scene.naive(scene.dtype, **options, product=product) for product in (torch.matmul, in_order)]
    moved = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in options.items()}
    if scene.trees:
        moved |= {name: tensor.to(device) for name, tensor in scene.tree_options().items()}
    num_rows = sum(scene.rows)
    out = torch.full_like(orders[0], NAN).to(device)
    out[num_rows:] = PADDING
    assert paged_attention(*scene.inputs(device), out=out, config=config, **moved) is out
    assert (out[num_rows:] == PADDING).all()
    if num_rows > 0:
        check_close(out[:num_rows], [theirs[:num_rows] for theirs in orders], exact[:num_rows])
    return out


SMALL = LaunchConfig(16, 16, num_warps=4)
MIXED = {"rows": [1, 5, 0, 19, 2], "contexts": [70, 9, 3, 19, 33]}


@pytest.mark.parametrize(
    ("heads", "dims"),
    [
        ((4, 2), (64, 64)),
        ((3, 1), (80, 80)),
        ((7, 1), (96, 96)),
        ((8, 2), (128, 128)),
        ((2, 2), (192, 128)),
        ((4, 1), (256, 256)),
        ((20, 1), (1, 3)),
    ],
    ids=str,
)
def test_head_dimensions_and_groups(heads, dims, device: torch.device) -> None:
    check(Scene(rows=[1, 4, 0], contexts=[37, 18, 1], heads=heads, dims=dims), device)


@pytest.mark.parametrize(
    ("block_size", "config"),
    [
        (16, None),
        (1, SMALL),
        (7, LaunchConfig(64, 32, 4)),
        (64, LaunchConfig(16, 16, 4, num_splits=3)),
        (7, LaunchConfig(16, 16, 4, num_splits=9)),
        (16, LaunchConfig(16, 16, 4, split_size=32)),
    ],
    ids=["heuristic", "small", "large", "3 splits", "9 splits", "splits of 32"],
)
def test_prompt_chunks_and_drafts_in_one_pass(block_size: int, config, device: torch.device) -> None:
    check(Scene(**MIXED, block_size=block_size, padding=3), device, config)


@pytest.mark.parametrize(("window", "num_splits"), [(1, 1), (6, 4), (20, 1), (20, 4), (1000, 1)])
def test_windows(window: int, num_splits: int, device: torch.device) -> None:
    check(Scene(**MIXED), device, LaunchConfig(16, 16, 4, num_splits=num_splits), window=window)


@pytest.mark.parametrize(
    ("softcap", "has_sinks", "num_splits"),
    [(0.5, False, 1), (30.0, False, 2), (None, True, 1), (None, True, 2), (0.5, True, 1), (30.0, True, 2)],
)
def test_soft_caps_and_sinks(softcap, has_sinks: bool, num_splits: int, device: torch.device) -> None:
    sinks = torch.tensor([-100.0, -1.0, 2.0, 40.0]) if has_sinks else None
    config = LaunchConfig(16, 16, 4, num_splits=num_splits)
    check(Scene(**MIXED), device, config, softcap=softcap, sinks=sinks, scale=1.0, window=24)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("num_splits", [1, 3])
def test_half_precision(dtype: torch.dtype, num_splits: int, device: torch.device) -> None:
    config = LaunchConfig(16, 16, 4, num_splits=num_splits)
    sinks = torch.linspace(-1, 1, 4).to(dtype)
    check(Scene(**MIXED, dims=(40, 24), dtype=dtype), device, config, sinks=sinks)


TREE = [-1, 0, 0, 1, 1, 2, 2, 5, 3]


@pytest.mark.parametrize("window", [None, 3, 17])
@pytest.mark.parametrize("num_splits", [1, 3])
def test_trees(window, num_splits: int, device: torch.device) -> None:
    scene = Scene(rows=[9, 1, 25, 4], contexts=[40, 33, 30, 4], trees={0: TREE, 3: [-1, 0, 0, 2]}, padding=1)
    check(scene, device, LaunchConfig(16, 16, 4, num_splits=num_splits), window=window)


@pytest.mark.parametrize("config", [SMALL, LaunchConfig(16, 16, 4, num_splits=3)], ids=str)
def test_rows_of_a_block_see_each_other(config: LaunchConfig, device: torch.device) -> None:
    check(Scene(**MIXED, padding=2), device, config, is_causal=False)


def test_a_tree_of_many_rows_beside_a_longer_chunk(device: torch.device) -> None:
    generator = torch.Generator().manual_seed(1)
    parents = [-1] + [int(torch.randint(i, (1,), generator=generator)) for i in range(1, 70)]
    scene = Scene(rows=[70, 150], contexts=[75, 151], trees={0: parents}, heads=(2, 2), dims=(16, 16))
    assert scene.tree_options()["tree_mask"].shape[1] == 2
    check(scene, device, LaunchConfig(64, 32, 4), window=9)


def test_a_row_that_sees_nothing_gives_zeros(device: torch.device) -> None:
    scene = Scene(rows=[2], contexts=[2])
    mask = torch.tensor([[0], [3]], device=device)
    out = torch.full((2, 4, 24), NAN, device=device)
    paged_attention(*scene.inputs(device), scale=1.0, tree_mask=mask, out=out)
    assert (out[0] == 0).all()
    assert not out[1].isnan().any()


def test_views(device: torch.device) -> None:
    scene = Scene(**MIXED)
    config = LaunchConfig(16, 16, 4, split_size=16)
    expected = check(scene, device, config)
    query, keys, values, tables, starts, lengths = scene.inputs(device)
    wide = torch.full((query.shape[0], 9, 30), NAN, device=device)
    wide[:, 3:7, 2:26] = query
    cache = torch.stack((keys, values), 1)  # one tensor, as some engines have it
    both = cache.unbind(1)
    assert both[0].stride() != keys.stride()
    result = torch.full((query.shape[0], 5, 24), NAN, device=device)
    paged_attention(
        wide[:, 3:7, 2:26],
        *both,
        tables.int(),
        starts.int(),
        lengths.int(),
        scale=24**-0.5,
        max_context_len=70,
        out=result[:, :4],
        config=config,
    )
    torch.testing.assert_close(result[:, :4], expected)
    assert result[:, 4].isnan().all()


def test_nothing_to_do(device: torch.device) -> None:
    scene = Scene(rows=[0], contexts=[4], padding=2)
    check(scene, device)
    empty = torch.empty(0, dtype=torch.int64, device=device)
    _, keys, values, tables, starts, _ = scene.inputs(device)
    out = paged_attention(keys.new_empty((0, 4, 24)), keys, values, tables[:0], starts[:1], empty, scale=1.0)
    assert out.shape == (0, 4, 24)


MUTANTS = {
    "sees nothing later": ("if not IS_CAUSAL:", "if False:"),
    "ends with its tile": ("    if IS_CAUSAL:\n", "    if True:\n"),
    "looks one token ahead": ("tokens[None, :] <= last_seen[:, None]", "tokens[None, :] <= last_seen[:, None] + 1"),
    "forgets the window": ("token_places[None, :] > places[:, None] - WINDOW", "True"),
    "starts behind the window": ("begin = tl.min(places, 0)", "begin = tl.max(places, 0)"),
    "takes rows for positions": ("places = tl.load(positions_ptr + rows).to(tl.int32)", "places = last_seen"),
    "forgets the tree": ("& 1) != 0", "& 1) >= 0"),
    "forgets the second word": ("    word += 1\n", "    word += 0\n"),
    "takes the bits of another tile": ("(here >> offset)", "here"),
    "forgets to rescale": ("sums * factors[:, None], input", "sums, input"),
    "counts the sink twice": ("masses * factors + tl.exp2(sinks", "masses * factors + 2 * tl.exp2(sinks"),
    "takes the first share": ("begin = tl.maximum(begin, share * SPLIT_SIZE)", "begin = tl.maximum(begin, 0)"),
    "forgets the tiles of earlier requests": ("TILE_QUERIES - request) *", "TILE_QUERIES) *"),
    "mixes up heads": ("heads = kv_head * GROUP + slots % GROUP", "heads = kv_head + slots % GROUP"),
    "takes the first page": ("table_ptr + tokens // PAGE_SIZE", "table_ptr + tokens * 0"),
    "writes padding": ("if row >= tl.load", "if row > tl.load"),
    "combines without weights": ("part * factors[:, None]", "part"),
    "reads what an empty share left": ("mask=(mass > 0.0)[:, None] &", "mask="),
}  # fmt: skip


def check_all(device: torch.device) -> None:
    """Calls between which every line of the kernels matters."""
    check(Scene(rows=[19, 2], contexts=[36, 70]), device, SMALL, is_causal=False)
    parents = [-1, *range(63), 3, 64, 3, 66]  # the paths of the last rows differ in the second word
    check(Scene(rows=[5, 2], contexts=[36, 70]), device, LaunchConfig(16, 16, 4, num_splits=3), window=3)
    trees = {1: parents, 2: [-1, 0, 0]}
    scene = Scene([2, 68, 3], [30, 70, 40], heads=(4, 2), dims=(16, 16), padding=1, trees=trees)
    sinks = torch.linspace(-1, 1, 4)
    check(scene, device, LaunchConfig(32, 32, 4, split_size=64), sinks=sinks, window=9)


@pytest.mark.interpreter
@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_kernel_fails(name: str, check_mutant) -> None:
    check_mutant("paged_attention", MUTANTS[name], lambda: check_all(torch.device("cpu")))


def test_what_the_mutants_are_tested_with_passes(device: torch.device) -> None:
    check_all(device)
