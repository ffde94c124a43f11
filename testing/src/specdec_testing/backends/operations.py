"""Attention, products and operations on rows of logits beside torch's."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product

import numpy as np
import torch
from torch import nn

from specdec.interfaces import RowOperations
from specdec.noise import Stream, exponentials, node_word, uniforms
from specdec_runtime.backends import distance
from specdec_runtime.interfaces import AttentionFactory, AttentionNeeds, KVCache, LayerShape
from specdec_runtime.runner import SdpaAttention
from specdec_testing.backends.suite import BackendSuite
from specdec_testing.support.packed import RequestRows, packed
from specdec_testing.support.target import reference_model
from specdec_testing.support.verdicts import broken, described

_ATTENTION_TOLERANCES = {torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""The largest difference of outputs for standard normal values: the tolerances of core's own comparison."""
_PRODUCT_TOLERANCES = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""The largest relative distance of a product: likewise."""
_CONTEXT = 64
_BATCHES = (
    (RequestRows(64, 0, (0,) * 21),),
    (RequestRows(64, 21, (0,)),),
    (RequestRows(0, 21, (0,) * 4), RequestRows(128, 0, (0,) * 9), RequestRows(64, 40, (0,))),
    (RequestRows(64, 17, (0,) * 5, (-1, 0, 0, 1, 2)), RequestRows(0, 30, (0,) * 2)),
    (RequestRows(64, 22, (0,) * 3, (-1, 0, 0, 1, 2, 1, 3, 4)),),
)
"""A prompt, a step, a mixed pass, a tree, and the next level of a tree."""
_SIZES = ((1, 7), (3, 203), (5, 4099))
_SEEDS, _POSITIONS, _SAMPLES = (
    np.array(numbers) for numbers in ([11, -5, 2**62, 0, 7919], [40, 0, 7, 2**31, 12], [0, 3, 1, 2, 0])
)


class OperationTests(BackendSuite):
    """Values and noise of what is no form of a model."""

    def test_attention_agrees(self) -> None:
        """Attention over prompts, steps, trees and several requests is torch's, up to rounding of the dtype.

        To fix: write keys and values first; a row sees the cached rows of its segment, those new rows that are before it or
        that `tree_mask` names, and nothing else.
        """
        self._check_attention({})

    def test_attention_follows_windows_caps_and_sinks(self) -> None:
        """`scaling`, `window`, `softcap` and `sinks` change attention as they change torch's.

        To fix: the window counts the row itself and goes by position; sinks are logits that carry no value; cap, then mask.
        """
        heads = reference_model(self.model).config.get_text_config().num_attention_heads
        sinks = torch.randn(heads, generator=torch.Generator().manual_seed(4))
        settings: tuple[dict[str, object], ...] = (
            {"window": 5},
            {"softcap": 3.0},
            {"sinks": sinks},
            {"scaling": 0.9},
        )
        for each in settings:
            self._check_attention(each)

    def test_products_agree(self) -> None:
        """The product of a linear module is torch's, for any number of rows and leading dimensions, in the input's dtype.

        To fix: compare with `module(x)`; flatten leading dimensions; keep the bias.
        """
        found = False
        for dtype, bias, (width, size) in product(_PRODUCT_TOLERANCES, (True, False), ((48, 40), (33, 129))):
            torch.manual_seed(5)
            module = nn.Linear(width, size, bias=bias).to(self._device, dtype).requires_grad_(False)
            try:
                forward = self._models.linear(module)
                if not callable(forward):
                    continue
                found = True
                for shape in ((), (1,), (5,), (100,), (2, 3), (0,)):
                    x = torch.randn(*shape, width).to(self._device, dtype)
                    _check_product(f"{dtype}, x {[*shape, width]}", forward(x), module(x))
            except Exception as error:
                broken(f"the product raised {described(error)}")
        if not found:
            self._ask(lambda: self._models.linear(nn.Linear(48, 40).to(self._device)))

    def test_rows_of_logits_agree(self) -> None:
        """`best_ids`, `valid_rows`, `scaled`, `keep_top_p` and `truncated` are torch's: ties go to the lowest id, NaN spreads
        over its row.

        To fix: compare with `specdec.noise.row_operations` under `SPECDEC_BACKENDS=`.
        """
        operations = self._ask(lambda: self._made.row_operations(self._device))
        for size in _SIZES:
            for what, logits in self._logits(*size):
                try:
                    _check_rows(f"{what} {size}", operations, logits)
                except Exception as error:
                    broken(f"{what} {size}: it raised {described(error)}")

    def test_noise_is_cores(self) -> None:
        """`multinomial`, `gumbel` and `uniforms` use the numbers of `specdec.noise`: the same keys give the same draws.

        To fix: the generator is Philox 4x32-10; see `specdec.noise.exponentials` and `uniforms`.
        """
        operations = self._ask(lambda: self._made.row_operations(self._device))
        for rows, ids in _SIZES:
            try:
                _check_noise(operations, rows, ids, self._device)
            except Exception as error:
                broken(f"{rows} rows of {ids} ids: it raised {described(error)}")

    def _check_attention(self, settings: dict[str, object]) -> None:
        found = False
        for dtype, tolerance in _ATTENTION_TOLERANCES.items():
            needs = AttentionNeeds(self._device, dtype)
            try:
                factory = self._models.attention(needs)
                if not callable(factory):
                    continue
                found = True
                for batch in _BATCHES:
                    got = self._attend(factory, needs, batch, settings)
                    expected = self._attend(SdpaAttention, needs, batch, settings)
                    off = float((got - expected).abs().max()) if got.shape == expected.shape else torch.inf
                    if not off <= tolerance:
                        what = f"{dtype}, {len(batch)} requests, {', '.join(settings) or 'no settings'}"
                        broken(f"{what}: attention is {off:.2g} off torch's")
            except Exception as error:
                broken(f"attention raised {described(error)}")
        if not found:
            self._ask(lambda: self._models.attention(AttentionNeeds(self._device, torch.float32)))

    def _attend(
        self,
        factory: AttentionFactory,
        needs: AttentionNeeds,
        requests: tuple[RequestRows, ...],
        settings: dict[str, object],
    ) -> torch.Tensor:
        """Return `[T, H, D]` for the model's head counts and head size; only rows that a request has are numbers."""
        config = reference_model(self.model).config.get_text_config()
        heads = config.num_attention_heads
        kv_heads = getattr(config, "num_key_value_heads", None) or heads
        width = getattr(config, "head_dim", None) or config.hidden_size // heads
        generator = torch.Generator().manual_seed(1)

        def normal(*size: int) -> torch.Tensor:
            return torch.randn(*size, generator=generator).to(needs.device, needs.dtype)

        cache = KVCache(3 * _CONTEXT, needs.device)
        cache.allocate(0, LayerShape(kv_heads, width, width, needs.dtype))
        for stored in (cache.keys[0], cache.values[0]):
            stored.fill_(torch.nan)
            for request in requests:
                first = request.first_slot
                stored[first : first + request.num_cached] = normal(request.num_cached, kv_heads, width)
        num_rows = sum(len(request.token_ids) for request in requests)
        inputs = [normal(num_rows, count, width) for count in (heads, kv_heads, kv_heads)]
        given = {"scaling": width**-0.5} | {
            name: value.to(needs.device) if isinstance(value, torch.Tensor) else value
            for name, value in settings.items()
        }
        with torch.inference_mode():
            attention = factory(cache, _CONTEXT)
            out = attention.attend(0, packed(requests, needs.device), *inputs, **given)
        return out.float().cpu()

    def _logits(self, rows: int, ids: int) -> Iterator[tuple[str, torch.Tensor]]:
        generator = torch.Generator().manual_seed(rows)
        normal = 5 * torch.randn(rows, ids, generator=generator)
        yield "logits", normal.to(self._device)
        yield "ties", torch.randint(0, 3, (rows, ids), generator=generator).float().to(self._device)
        forbidden = normal.masked_fill(torch.rand(rows, ids, generator=generator) < 0.7, -torch.inf)
        forbidden[:, ids // 2] = 1.0
        yield "forbidden ids", forbidden.to(self._device)
        invalid = normal.clone()
        invalid[0, ids - 1] = torch.nan
        invalid[rows - 1] = -torch.inf
        yield "invalid rows", invalid.to(self._device)


def _check_product(what: str, got: torch.Tensor, expected: torch.Tensor) -> None:
    if (got.shape, got.dtype) != (expected.shape, expected.dtype):
        broken(f"{what}: {got.dtype} {tuple(got.shape)}, not {expected.dtype} {tuple(expected.shape)}")
    if got.numel() and not (off := distance(got, expected)) <= _PRODUCT_TOLERANCES[got.dtype]:
        broken(f"{what}: the product is {off:.1e} off torch's")


def _check_rows(what: str, operations: RowOperations, logits: torch.Tensor) -> None:
    values = logits.cpu().numpy()
    valid = ~np.isnan(values).any(-1) & (values.max(-1) > -np.inf)
    got = operations.valid_rows(logits)
    if (got.tolist() if got is not None else [True] * len(valid)) != valid.tolist():
        broken(f"{what}: valid_rows is {got if got is None else got.tolist()}, not {valid.tolist()}")
    best = [operations.best_ids(logits)[row] for row in np.nonzero(valid)[0]]
    if best != (expected := values[valid].argmax(-1).tolist()):
        broken(f"{what}: best_ids are {best}, not {expected}")
    for temperature in (0.7, 0.01, 3.0):
        exact = (logits.double() - logits.double().amax(-1, keepdim=True)) / temperature
        scaled = operations.scaled(logits, temperature)[valid]
        if not torch.allclose(scaled.double(), exact[valid], rtol=1e-5, atol=1e-5):
            broken(f"{what}: scaled at temperature {temperature} is not (logits - max) / temperature")
    heat = 0.5 + torch.arange(len(logits), device=logits.device)[:, None].double()
    exact = (logits.double() - logits.double().amax(-1, keepdim=True)) / heat
    if not torch.allclose(
        operations.scaled_rows(logits, heat).double()[valid], exact[valid], rtol=1e-5, atol=1e-5
    ):
        broken(f"{what}: scaled_rows is not (logits - max) / temperature")
    counts = np.full(len(logits), logits.shape[1])
    for top_p in (0.1, 0.8, 1.0):
        kept = [
            keep(logits, top_p, counts)
            for keep in (operations.keep_top_p, partial(RowOperations.keep_top_p, operations))
        ]
        if not torch.equal(kept[0][valid], kept[1][valid]):
            broken(f"{what}: keep_top_p({top_p}) is not that of a stable sort")
    for top_p in (0.1, 0.8, 1.0):
        settings = np.array([[0.7], [0.0], [logits.shape[1]], [top_p]]).repeat(len(logits), 1)
        at_once = operations.truncated(logits.float(), settings)
        if at_once is None:
            break
        scaled = (logits.float() - logits.float().amax(-1, keepdim=True)) / 0.7
        kept_at_once, kept_alone = (
            at_once[valid],
            RowOperations.keep_top_p(operations, scaled, top_p, counts)[valid],
        )
        if not torch.allclose(kept_at_once, kept_alone, rtol=1e-5, atol=1e-5):
            broken(
                f"{what}: truncated at temperature 0.7 and top-p {top_p} is not what these give one after another"
            )
        is_valid = operations.valid_rows(at_once)
        if is_valid is not None and is_valid.tolist() != valid.tolist():
            broken(
                f"{what}: truncated makes numbers of rows that are none, so that a token is drawn from them"
            )
    unclear = operations.scaled(logits, 0.7)[values.max(-1) != values.max(-1)]
    if not bool(unclear.isnan().all()):
        broken(f"{what}: scaled rows with NaN have numbers")


def _check_noise(operations: RowOperations, rows: int, ids: int, device: torch.device) -> None:
    seeds, positions, samples = _SEEDS[:rows], _POSITIONS[:rows], _SAMPLES[:rows]
    a, b, c = (torch.from_numpy(key).to(device) for key in (seeds, positions, samples))
    words = torch.tensor([node_word(Stream.RESIDUAL, row) for row in range(rows)], device=device)
    weights = torch.softmax(3 * torch.randn(rows, ids, generator=torch.Generator().manual_seed(2)), -1)
    weights[:, ::3] = 0.0
    weights = weights.to(device)
    drawn = (exponentials(a, b, c, words, ids) / weights.double()).argmin(-1)
    got = operations.multinomial(weights, seeds, positions, samples, words)
    if got.tolist() != drawn.tolist():
        broken(f"multinomial over {ids} ids drew {got.tolist()}, not {drawn.tolist()}")
    word = node_word(Stream.TARGET)
    gumbel = -exponentials(a, b, c, torch.full_like(a, word), ids).log()
    noise = operations.gumbel(seeds, positions, samples, word, ids)
    if not torch.allclose(noise.double(), gumbel.double(), atol=1e-5):
        broken(f"gumbel noise over {ids} ids is not that of specdec.noise")
    nodes = np.array([node_word(Stream.ACCEPT, node) for node in range(3)])
    fresh = operations.uniforms(seeds, positions, samples, nodes).cpu()
    for column, node in enumerate(nodes):
        expected = uniforms(a, b, c, torch.full_like(a, int(node)), 1)[:, 0].cpu()
        if not torch.allclose(fresh[:, column], expected, rtol=0.0, atol=1e-12):
            broken("uniforms are not those of specdec.noise")
