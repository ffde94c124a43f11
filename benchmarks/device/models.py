"""The models of a run: created at run time or taken from the zoo."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

import torch
from common.model import resolve_model, zoo_artefact
from common.prompts import load_prompts
from transformers import AutoModelForCausalLM, PreTrainedModel

from device.counting import counting_model
from device.plan import Plan

_DRAFT_SEED = 1


class Models:
    """A target, loaded once and shared by all engines of a run, and a draft for it.

    Args:
        plan: selects the models.
        folder: where a draft created at run time is written, for engines that load it by path.
    """

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._plan = plan
        self._folder = folder
        self.device = torch.device(plan.device)
        self.dtype: torch.dtype = getattr(torch, plan.dtype)

    @cached_property
    def target(self) -> PreTrainedModel:
        """The target, on the device."""
        if self._plan.target is not None:
            return counting_model(self._plan.target, self.device, self.dtype)
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            resolve_model("zoo"), dtype=self.dtype
        ).to(self.device)  # type: ignore[arg-type]  # transformers' own overload of to
        assert model.generation_config is not None
        model.generation_config.eos_token_id = None
        model.eval()
        return model

    def second_target(self) -> PreTrainedModel:
        """Return a second model that shares the target's weights and uses torch's SDPA, for other engines."""
        shared = {id(tensor): tensor for tensor in (*self.target.parameters(), *self.target.buffers())}
        model = copy.deepcopy(self.target, dict(shared))
        model.set_attn_implementation("sdpa")
        return model

    @cached_property
    def draft(self) -> str:
        """Folder of the draft; one created at run time counts correctly in `assisted.share_right` of all tokens."""
        if self._plan.draft is None:
            return zoo_artefact("draft")
        share_right = self._plan.assisted.share_right
        made = counting_model(
            self._plan.draft, self.device, self.dtype, seed=_DRAFT_SEED, share_right=share_right
        )
        made.save_pretrained(self._folder / "draft")
        return str(self._folder / "draft")

    def prompts(self, count: int, num_tokens: int) -> list[list[int]]:
        """Return token ids of the zoo's held-out prompts, or random ones for a target created at run time."""
        shape = self._plan.target
        if shape is None:
            return load_prompts(None, resolve_model("zoo"), count, num_tokens)
        generator = torch.Generator().manual_seed(0)
        drawn: list[list[int]] = torch.randint(
            shape.vocab_size, (count, num_tokens), generator=generator
        ).tolist()
        return drawn

    def gap_of(self) -> Callable[[Sequence[int]], float]:
        """Return a function that computes the gap between the two best logits after given tokens, in float64."""
        exact: list[PreTrainedModel] = []

        def gap(token_ids: Sequence[int]) -> float:
            if not exact:
                exact.append(copy.deepcopy(self.second_target()).double())
            with torch.inference_mode():
                ids = torch.tensor([list(token_ids)], device=self.device)
                best = exact[0](input_ids=ids, logits_to_keep=1).logits[0, -1].topk(2).values
            return float(best[0] - best[1])

        return gap

    def bytes_of_pass(self) -> int:
        """Return the bytes of weights that a pass reads: all but the input embedding, unless the head is tied to it."""
        model = self.target
        embedding = model.get_input_embeddings().weight
        assert isinstance(embedding, torch.Tensor)
        total = sum(weight.numel() * weight.element_size() for weight in model.parameters())
        is_tied = bool(getattr(model.config, "tie_word_embeddings", False))
        return total if is_tied else total - embedding.numel() * embedding.element_size()

    def bytes_per_token(self) -> int:
        """Return the bytes of keys and values of one token."""
        config = self.target.config
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        numbers = 2 * config.num_hidden_layers * config.num_key_value_heads * head_dim
        return int(numbers) * self.dtype.itemsize
