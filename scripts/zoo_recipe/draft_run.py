"""One training run of a draft model for the zoo's target."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from specdec_train.claim import claim
from specdec_train.distillation import acceptance, distillation_loss
from specdec_train.loop import Evaluation, RunState, loop_config, train
from specdec_train.optimizer import OptimizerPair
from specdec_train.packing import packed_text
from specdec_train.precision import round_to_bfloat16
from zoo_recipe.corpus import read_corpus, stdlib_root
from zoo_recipe.documents import training_texts
from zoo_recipe.draft_recipe import DraftRecipe
from zoo_recipe.recipe import Recipe
from zoo_recipe.run import HeldoutLoss, heldout_loss
from zoo_recipe.target import mean_loss
from zoo_recipe.tokenizer import END_OF_TEXT, encode, load_tokenizer, token_id


@dataclass(frozen=True)
class TrainedDraft:
    """The result of a run, in memory.

    Args:
        model: final weights, rounded to bfloat16 as they are shipped, stored in float32.
        tokenizer: the target's tokenizer.
        state: steps, seconds and loss curve.
        heldout: loss on held-out text.
        acceptance: see `distillation.acceptance`.
        num_train_tokens: tokens of one epoch, separators and dialogues included.
    """

    model: LlamaForCausalLM
    tokenizer: PreTrainedTokenizerFast
    state: RunState
    heldout: HeldoutLoss
    acceptance: list[dict[str, float]]
    num_train_tokens: int


def train_draft(
    recipe: DraftRecipe,
    corpus_recipe: Recipe,
    artefacts: Path,
    folder: Path,
    *,
    max_minutes: float | None = None,
    resume: bool = False,
) -> TrainedDraft:
    """Train a draft for the target in `artefacts`, keeping checkpoints in `folder`.

    Args:
        recipe: all hyperparameters of the run.
        corpus_recipe: recipe of the target, for the corpus and its split.
        artefacts: folder that holds `target` and the model the draft starts from.
        folder: checkpoint folder; a run with the same recipe can be resumed from it.
        max_minutes: time budget of the steps, None for no limit.
        resume: continue the run in `folder`.

    Raises:
        ValueError: an artefact is missing, or `resume` is set and `folder` holds a run of another recipe.
    """
    torch.set_num_threads(recipe.threads)
    claim(folder, json.loads(json.dumps(asdict(recipe))), resume=resume)
    target = load_artefact(artefacts / "target").requires_grad_(False)
    corpus = read_corpus(
        stdlib_root(), heldout_permille=corpus_recipe.heldout_permille, only=corpus_recipe.only
    )
    tokenizer = load_tokenizer(artefacts / "target")
    heldout_ids = encode(tokenizer, [file.text for file in corpus.split("heldout")])
    text = packed_text(
        encode(tokenizer, training_texts(corpus, corpus_recipe)),
        heldout_ids,
        separator=token_id(tokenizer, END_OF_TEXT),
        seq_len=recipe.seq_len,
        eval_windows=recipe.eval_windows,
        seed=recipe.seed,
    )
    model = _part_of(load_artefact(artefacts / recipe.starts_from), recipe.kept_layers).train()
    loss = partial(distillation_loss, model, target)
    state = train(
        model,
        OptimizerPair(
            model, muon_lr=recipe.muon_lr, adamw_lr=recipe.adamw_lr, weight_decay=recipe.weight_decay
        ),
        lambda step: recipe.repeats.put_into(
            text.train.batch(step, recipe.batch_size), step, vocab_size=len(tokenizer), seed=recipe.seed
        ),
        loss,
        lambda: Evaluation(mean_loss(loss, text.spread, recipe.micro_batch)),
        loop_config("causal", recipe, max_minutes),
        folder,
        resume=resume,
    )
    round_to_bfloat16(model).train(False)
    final = heldout_loss(model, text.heldout, recipe.micro_batch, corpus, heldout_ids)
    accepted = acceptance(model, target, text.heldout, recipe.micro_batch)
    return TrainedDraft(model, tokenizer, state, final, accepted, text.train.num_tokens)


def load_artefact(folder: Path) -> LlamaForCausalLM:
    """Load an artefact in float32."""
    if not (folder / "config.json").exists():
        raise ValueError(f"{folder} holds no model: train it first (python -m zoo_recipe)")
    model: LlamaForCausalLM = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model


def _part_of(model: LlamaForCausalLM, layers: Sequence[int]) -> LlamaForCausalLM:
    """The model with only the given layers, or all layers if none are given."""
    if not layers:
        return model
    config = LlamaConfig.from_dict(model.config.to_dict() | {"num_hidden_layers": len(layers)})
    part = LlamaForCausalLM(config)
    weights = {name: value for name, value in model.state_dict().items() if ".layers." not in name}
    for place, layer in enumerate(layers):
        for name, value in model.model.layers[layer].state_dict().items():
            weights[f"model.layers.{place}.{name}"] = value
    part.load_state_dict(weights)
    return part
