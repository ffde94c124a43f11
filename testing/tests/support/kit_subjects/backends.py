"""A backend that offers everything, through torch; mutants change one part of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from specdec import registry
from specdec.interfaces import Declined, RowOperations, Verify
from specdec.noise import Stream, exponentials, node_word
from specdec.noise.torch_rows import TorchRows
from specdec_runtime.interfaces import (
    AttentionFactory,
    AttentionNeeds,
    Chain,
    Chains,
    ChainWork,
    Form,
    ForwardOutput,
    ModelBackend,
    NewRows,
    PackedBatch,
    Runner,
)
from specdec_runtime.runner import SdpaAttention
from specdec_testing.support.packed import RequestRows, packed


class RightForm(Form):
    """Gives every pass to the form inside it."""

    def __init__(self, runner: Runner, inner: Form) -> None:
        self.runner, self.inner = runner, inner
        self.num_passes = 0

    def forward(self, batch: PackedBatch, features: torch.Tensor | None) -> ForwardOutput:
        self.num_passes += 1
        return self.inner.forward(batch, features)

    @property
    def chain(self) -> Chain | None:
        return RightChain(self.runner) if self.runner.is_draft else None

    def counts(self) -> dict[str, int]:
        return {"right_passes": self.num_passes}


class RightChain:
    """A draft loop of one pass per token."""

    max_rows = max_new_rows = 32
    max_tree_nodes = 0

    def __init__(self, runner: Runner) -> None:
        self.runner = runner

    def draft(self, logits: torch.Tensor, states: torch.Tensor | None, work: ChainWork) -> Chains:
        tokens, probs = [], []
        for step in range(work.num_steps):
            rows = logits[:, : work.rules.num_ids].double()
            q = torch.stack([self.probs(row, t) for row, t in zip(rows, work.temperatures, strict=True)])
            probs.append(q)
            tokens.append(self.choose(q, step, work).tolist())
            places = zip(work.first_slots, work.num_cached, tokens[-1], strict=True)
            parts = [RequestRows(slot, cached + step, (token,)) for slot, cached, token in places]
            logits = self.runner.forward(packed(parts, self.runner.device)).logits
        ids = torch.tensor(tokens).T
        return Chains(ids, torch.empty(0, 0), torch.stack(probs, 1).float())

    def draft_after(self, rows: NewRows, work: ChainWork) -> Chains:
        ids, first, requests = rows.token_ids.tolist(), 0, []
        for slot, cached, count in zip(work.first_slots, work.num_cached, rows.counts, strict=True):
            requests.append(RequestRows(slot, cached, tuple(ids[first : first + count])))
            first += count
        last = np.cumsum(rows.counts) - 1
        logits = self.runner.forward(packed(requests, self.runner.device, last.tolist())).logits
        after = [cached + count for cached, count in zip(work.num_cached, rows.counts, strict=True)]
        return self.draft(
            logits,
            None,
            ChainWork(work.first_slots, after, work.num_steps, work.temperatures, work.keys, work.rules),
        )

    def probs(self, logits: torch.Tensor, temperature: float) -> torch.Tensor:
        if temperature == 0:
            return nn.functional.one_hot(logits.argmax(), len(logits)).double()
        return torch.softmax(logits / temperature, -1)

    def word(self, step: int, *, is_drawn: bool) -> int:
        return node_word(Stream.DRAFT, step) if is_drawn else node_word(Stream.TARGET)

    def choose(self, probs: torch.Tensor, step: int, work: ChainWork) -> torch.Tensor:
        is_drawn = work.rules.is_drawn
        seeds, positions, samples = (
            torch.from_numpy(key.astype(np.int64))
            for key in (work.keys.seeds, work.keys.positions, work.keys.samples)
        )
        words = torch.full_like(seeds, self.word(step, is_drawn=is_drawn))
        places = positions if is_drawn else positions + step
        return (exponentials(seeds, places, samples, words, probs.shape[1]) / probs).argmin(-1)


class Right(ModelBackend):
    """Offers everything."""

    name = "right"
    api_version = 1
    order = 5
    form_class: type[RightForm] = RightForm
    attention_class: type[SdpaAttention] = SdpaAttention
    rows_class: type[TorchRows] = TorchRows

    def attention(self, needs: AttentionNeeds) -> AttentionFactory | Declined:
        return self.attention_class

    def form(self, runner: Runner, stage: int, inner: Form) -> Form | Declined:
        return self.form_class(runner, inner)

    def linear(self, module: nn.Linear) -> Callable[[torch.Tensor], torch.Tensor] | Declined:
        return lambda x: nn.functional.linear(x, module.weight, module.bias)

    def verifier(self, sampler: str, device: torch.device) -> Verify | Declined:
        if sampler not in ("strict", "probabilistic", "block"):
            return Declined("it verifies by the lossless samplers")
        kind = registry.sampler(sampler)
        verify: Verify = kind(kind.Config()).verify_with_torch  # type: ignore[attr-defined]  # of a `TorchSampler`
        return verify

    def row_operations(self, device: torch.device) -> RowOperations | Declined:
        return self.rows_class(device)
