"""One model run three ways: by a backend's form, by its own forward, and in wider arithmetic."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from specdec.interfaces import Declined
from specdec_runtime.backends import agreement
from specdec_runtime.interfaces import AttentionNeeds, Form, ForwardOutput, ModelBackend
from specdec_runtime.runner import ModuleRunner
from specdec_testing.support.packed import RequestRows, packed
from specdec_testing.support.verdicts import broken, described

MAX_CONTEXT = 64
"""Maximum sequence length, in tokens, and distance of the requests' first slots."""
NUM_REQUESTS = 6
"""Requests that there is room for."""
_WIDER = {torch.float32: torch.float64, torch.bfloat16: torch.float32}


class FastRunner:
    """Runs passes by a backend's form and compares each with the model's own forward.

    Args:
        backend: the backend.
        model: the model, of which copies are run.
        dtype: what it runs in.
        device: where.
        is_draft: whether it is run as a proposer's model.
        is_invariant: whether logits must be batch-invariant.
    """

    def __init__(
        self,
        backend: ModelBackend,
        model: PreTrainedModel,
        dtype: torch.dtype,
        device: torch.device,
        *,
        is_draft: bool = False,
        is_invariant: bool = False,
    ) -> None:
        answer = backend.attention(AttentionNeeds(device, dtype, is_invariant))
        self.device, self.dtype = device, dtype
        self.fast = ModuleRunner(
            copied(model, dtype, device),
            device,
            MAX_CONTEXT,
            is_fused=False,
            make_attention=None if isinstance(answer, Declined) else answer,
            is_invariant=is_invariant,
            is_draft=is_draft,
        )
        self.plain = ModuleRunner(copied(model, dtype, device), device, MAX_CONTEXT, is_fused=False)
        rounded = copied(model, dtype, device)
        self.wide = ModuleRunner(copied(rounded, _WIDER[dtype], device), device, MAX_CONTEXT, is_fused=False)
        self.own = self.fast.forms[0][0]
        """The form inside the backend's."""
        self.form: Form | Declined = backend.form(self.fast, 0, self.own)
        if isinstance(self.form, Form):
            self.fast.forms[0].insert(0, self.form)
        self.allocate(NUM_REQUESTS * MAX_CONTEXT)

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return int(self.plain.module.config.get_text_config().vocab_size)  # type: ignore[union-attr, operator]

    def allocate(self, num_slots: int) -> None:
        """Give every runner a new cache, whose rows are not numbers until they are written."""
        for runner in (self.fast, self.plain, self.wide):
            runner.allocate(num_slots)
            for tensor in (*runner.cache.keys.values(), *runner.cache.values.values()):
                tensor.fill_(torch.nan)

    def capture_hidden(self, aux_layer_ids: Sequence[int]) -> None:
        """Return hidden states with every later pass."""
        for runner in (self.fast, self.plain, self.wide):
            runner.capture_hidden(aux_layer_ids)

    def run(
        self,
        what: str,
        *requests: RequestRows,
        logits_rows: Sequence[int] | None = None,
        form: Form | None = None,
    ) -> ForwardOutput:
        """Run a pass three ways and compare it; returns the output of the backend's form.

        Args:
            what: the pass, in the message if outputs differ.
            requests: the rows.
            logits_rows: see `PackedBatch`.
            form: runs the pass in place of the backend's.
        """
        batch = packed(requests, self.device, logits_rows)
        try:
            if form is None:
                got = self.fast.forward(batch)
            else:
                with torch.inference_mode():
                    got = form.forward(batch, None)
        except Exception as error:
            broken(f"{what}: forward raised {described(error)}")
        self._compare(what, got, self.plain.forward(batch), self.wide.forward(batch))
        return got

    def _compare(self, what: str, got: ForwardOutput, own: ForwardOutput, wide: ForwardOutput) -> None:
        for name, ours, theirs, exact in zip(_NAMES, _parts(got), _parts(own), _parts(wide), strict=True):
            if len(ours) != len(theirs):
                broken(f"{what}: {len(ours)} {name} where the model's own forward returns {len(theirs)}")
            for one, another in zip(ours, theirs, strict=True):
                if one.shape != another.shape or one.dtype not in (another.dtype, torch.float32):
                    shown = f"{one.dtype} {tuple(one.shape)}"
                    broken(f"{what}: {name} are {shown}, not {another.dtype} {tuple(another.shape)}")
            if ours and not (found := agreement(ours, theirs, exact, self.dtype)).holds:
                broken(f"{what}: {name} are {found}")


_NAMES = ("logits", "hidden_states", "aux_hidden_states")


def _parts(output: ForwardOutput) -> tuple[list[torch.Tensor], ...]:
    states = [] if output.hidden_states is None else [output.hidden_states]
    return [output.logits], states, list(output.aux_hidden_states)


def copied(model: PreTrainedModel, dtype: torch.dtype, device: torch.device) -> PreTrainedModel:
    """Return a copy of a model in a dtype on a device."""
    made = copy.deepcopy(model)
    made.to(device=device, dtype=dtype)  # type: ignore[call-arg]  # the decorator of transformers hides them
    return made
