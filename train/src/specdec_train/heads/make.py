"""Initialises heads: the target's last layer after a projection that passes the target's state through."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from specdec_plugin_dflash import default_layers
from specdec_plugin_eagle import Eagle3Head, EagleHead, EagleSettings
from specdec_plugin_mtp import MtpHead
from specdec_runtime.interfaces import DraftHead
from specdec_runtime.models import decoder_layers, input_embedding, output_head
from specdec_train.heads.best_layers import best_layers
from specdec_train.heads.finetuned import load_published, published_layers
from specdec_train.heads.own_token import read_own_token
from specdec_train.heads.recipe import BLOCK_METHODS, HeadRecipe
from specdec_train.heads.weights import weight_of

_VOCAB_STEP = 128
"""Draft vocabularies are multiples of this, as matrix products prefer."""
LEAST_DRAFT_IDS = 8192
"""Smallest draft vocabulary that is chosen by coverage. Few answers do not show the rare ids: of 1,700 answers of SmolLM2, 98 %
of the tokens are 5,511 ids, which are 92 % of the tokens of other answers; 8,192 ids are 94 %, 16,384 are 97 %. Ids that do not
occur are taken in ascending order, which is that of frequency where merges of byte pairs made them."""
_LEFT_OUT = (
    "architectures",
    "dtype",
    "torch_dtype",
    "transformers_version",
    "_name_or_path",
    "id2label",
    "label2id",
)


def head_config(target: PreTrainedModel) -> dict[str, Any]:
    """Return the configuration of one layer like the target's, in the form of published heads.

    Raises:
        ValueError: if the target's layers are not of the Llama structure.
    """
    config: dict[str, Any] = target.config.get_text_config().to_dict()
    layer = decoder_layers(target)[-1]
    if not all(
        hasattr(layer, name) for name in ("self_attn", "mlp", "input_layernorm", "post_attention_layernorm")
    ):
        raise ValueError(
            f"{type(target).__name__}: heads are made of layers like Llama's (self_attn, mlp, two norms), which it does not "
            "have"
        )
    kept = {key: value for key, value in config.items() if key not in _LEFT_OUT and value is not None}
    rope = kept.get("rope_parameters") or {}
    if "rope_theta" in rope:
        kept["rope_theta"] = rope["rope_theta"]  # the key for readers older than transformers 5
    return kept | {"num_hidden_layers": 1, "vocab_size": weight_of(output_head(target)).shape[0]}


def aux_layer_ids(target: PreTrainedModel, recipe: HeadRecipe) -> tuple[int, ...]:
    """Return the layers whose inputs an EAGLE-3 head reads."""
    num_layers: int = target.config.get_text_config().num_hidden_layers
    if not recipe.aux_shares:
        return (2, num_layers // 2, num_layers - 3)
    return tuple(min(round(share * num_layers), num_layers - 1) for share in recipe.aux_shares)


def read_layers(target: PreTrainedModel, recipe: HeadRecipe) -> tuple[int, ...]:
    """Return the layers whose inputs a head reads beside the target's final states."""
    if recipe.method in BLOCK_METHODS:
        num_layers: int = target.config.get_text_config().num_hidden_layers
        return tuple(k + 1 for k in default_layers(num_layers, recipe.num_layers + 1))
    if recipe.method != "eagle3":
        return ()
    return published_layers(target, recipe) if recipe.finetuned_from else aux_layer_ids(target, recipe)


def make_eagle(target: PreTrainedModel) -> EagleHead:
    """Return an EAGLE-1 head for a target."""
    settings = EagleSettings.from_dict(head_config(target), "the target", is_eagle3=False)
    head = EagleHead(settings, input_embedding(target), output_head(target), has_fc_bias=False)
    size = settings.target_hidden_size
    _let_through(head.fc.weight, size)
    _let_in(head.fc.weight[:, :size], target)
    layer = head.body.layers[0]
    _take_over(layer, decoder_layers(target)[-1])
    _silence(layer)
    _prepare(head, target)
    return head


def make_eagle3(
    target: PreTrainedModel, recipe: HeadRecipe, documents: Sequence[Sequence[int]]
) -> tuple[Eagle3Head, dict[str, Any]]:
    """Return an EAGLE-3 head for a target, and the configuration to publish it with.

    Args:
        target: the target.
        recipe: sets the size of the draft vocabulary.
        documents: token ids of the training text, for their frequencies.
    """
    config = head_config(target)
    vocab_size = int(config["vocab_size"])
    counts = count_ids(documents, vocab_size)
    ids = draft_ids(counts, recipe)
    aux = list(aux_layer_ids(target, recipe))
    config |= {
        "draft_vocab_size": vocab_size if ids is None else len(ids),
        "target_hidden_size": config["hidden_size"],
        "tie_word_embeddings": False,
        "norm_before_residual": True,
        "eagle_aux_hidden_state_layer_ids": aux,
        "eagle_config": {
            "use_aux_hidden_state": True,
            "eagle_aux_hidden_state_layer_ids": [layer - 1 for layer in aux],  # SGLang counts outputs
        },
    }
    settings = EagleSettings.from_dict(config, "the target", is_eagle3=True)
    head = Eagle3Head(settings, input_embedding(target))
    last = decoder_layers(target)[-1]
    assert head.fc is not None
    _let_through(head.fc.weight, settings.target_hidden_size)
    _take_over(head.body.layers[0], last)
    _silence(head.body.layers[0])
    with torch.no_grad():
        weight_of(head.hidden_norm).copy_(weight_of(last.input_layernorm))
        weight_of(head.norm).copy_(weight_of(target.base_model.norm))
        projection = weight_of(output_head(target))
        if ids is not None:
            head.target_ids = ids.to(target.device)
            projection = projection[head.target_ids]
        head.lm_head.weight.copy_(projection)
    read_own_token(head, target)
    _prepare(head, target)
    return head, config


def load_for_training(
    target: PreTrainedModel, recipe: HeadRecipe
) -> tuple[EagleHead | Eagle3Head, Mapping[str, Any]]:
    """Return a published head, ready for more training, and the configuration to publish it with again.

    Raises:
        ModelError: if it cannot be loaded, or is not a head of this kind for this target.
    """
    head, config = load_published(target, recipe)
    _prepare(head, target)
    head.embed_tokens.requires_grad_(False)  # its own, if it has one
    if isinstance(head, Eagle3Head) and head.mask_hidden is not None:
        head.mask_hidden.requires_grad_(False)  # used by parallel drafting only
    return head, config


def make_mtp(target: PreTrainedModel) -> MtpHead:
    """Return a layer of multi-token prediction for a target."""
    head_config(target)
    projection = output_head(target)
    config = copy.deepcopy(target.config.get_text_config())
    config.dtype = None  # trained weights are float32, whatever the target's dtype
    head = MtpHead(config, input_embedding(target), projection, weight_of(projection).shape[0])
    stage = head.stage(0)
    _let_through(stage.join.weight, weight_of(projection).shape[1])
    _take_over(stage.layers[0], decoder_layers(target)[-1])
    _silence(stage.layers[0])
    with torch.no_grad():
        weight_of(stage.norm).copy_(weight_of(target.base_model.norm))
    _prepare(head, target)
    return head


def _silence(layer: nn.Module) -> None:
    """Make a layer add nothing at first: states after the final norm are much smaller than those inside."""
    with torch.no_grad():
        for name in ("self_attn.o_proj", "mlp.down_proj"):
            weight_of(layer.get_submodule(name)).zero_()


def make_draft(
    target: PreTrainedModel, recipe: HeadRecipe, documents: Sequence[Sequence[int]]
) -> PreTrainedModel:
    """Return a draft model for a target: the target with only some of its layers.

    Args:
        target: the target.
        recipe: which layers, or how many; see `best_layers`.
        documents: token ids of the training text.

    Raises:
        ValueError: if the target does not have one of the layers.
    """
    layers = decoder_layers(target)
    wanted = recipe.kept_layers or best_layers(target, documents, recipe.num_kept_layers)
    kept = [range(len(layers))[k] for k in wanted if -len(layers) <= k < len(layers)]
    if len(kept) < len(wanted):
        raise ValueError(f"the target has layers 0 to {len(layers) - 1}, not all of {list(wanted)}")
    config = copy.deepcopy(target.config)
    config.get_text_config().num_hidden_layers = len(kept)
    for key in ("layer_types", "mlp_layer_types"):
        types = getattr(config.get_text_config(), key, None)
        if types is not None:
            setattr(config.get_text_config(), key, [types[k] for k in kept])
    draft: PreTrainedModel = type(target)(config)
    draft.load_state_dict(
        {name: value for name, value in target.state_dict().items() if _is_outside(name, target)},
        strict=False,
    )
    for own, k in zip(decoder_layers(draft), kept, strict=True):
        own.load_state_dict(layers[k].state_dict())
    draft.tie_weights()
    draft.requires_grad_(True).train()
    return draft


def _is_outside(name: str, model: PreTrainedModel) -> bool:
    """Return whether a weight is outside the decoder layers."""
    layers = next(path for path, module in model.named_modules() if module is decoder_layers(model))
    return not name.startswith(f"{layers}.")


def count_ids(documents: Sequence[Sequence[int]], vocab_size: int) -> Tensor:
    """Return how often each id occurs in a text, `[V]`."""
    counts = torch.zeros(vocab_size, dtype=torch.int64)
    for ids in documents:
        counts += torch.bincount(torch.tensor(ids, dtype=torch.int64), minlength=vocab_size)
    return counts


def num_covering(counts: Tensor, share: float) -> int:
    """Return how many of the most frequent ids make up a share of all tokens, as a multiple of `_VOCAB_STEP` if possible.

    Args:
        counts: `[V]` occurrences of each id.
        share: above 0, at most 1.
    """
    covered = counts.sort(descending=True).values.cumsum(0)
    needed = int((covered < share * covered[-1]).sum()) + 1
    return min(-(-needed // _VOCAB_STEP) * _VOCAB_STEP, len(counts))


def draft_ids(counts: Tensor, recipe: HeadRecipe) -> Tensor | None:
    """Return the ids of a head's draft vocabulary, ascending; None for all.

    Args:
        counts: `[V]` occurrences of each id.
        recipe: sets their number.
    """
    count = min(recipe.draft_vocab_size or len(counts), len(counts))
    if recipe.draft_vocab_coverage:
        count = max(num_covering(counts, recipe.draft_vocab_coverage), min(LEAST_DRAFT_IDS, len(counts)))
    return frequent_ids(counts, count) if count < len(counts) else None


def frequent_ids(counts: Tensor, count: int) -> Tensor:
    """Return the `count` most frequent ids, ascending; ties go to the lowest id.

    Args:
        counts: `[V]` occurrences of each id.
        count: number of ids.
    """
    return counts.argsort(descending=True, stable=True)[:count].sort().values


def _let_through(weight: Tensor, size: int) -> None:
    """Initialise an input projection `[H, n]` with small noise, and identity for the last `size` inputs."""
    with torch.no_grad():
        nn.init.normal_(weight, std=0.02)
        if weight.shape[0] == size:
            weight[:, -size:] = torch.eye(size)


def _let_in(weight: Tensor, target: PreTrainedModel) -> None:
    """Initialise the embedding's part `[H, H]` of an input projection: a rotation to half the states' size.

    Embeddings are often much smaller, and the projection would take long to grow; rotated, they do not look
    like predictions.
    """
    with torch.no_grad():
        states, embedded = weight_of(target.base_model.norm), weight_of(input_embedding(target))
        nn.init.orthogonal_(weight)
        weight *= 0.5 * (states.square().mean() / embedded.square().mean()).sqrt().item()


def _take_over(layer: nn.Module, source: nn.Module) -> None:
    """Copy a target layer's weights where shapes match, or into the second half of matrices twice as wide."""
    theirs = dict(source.named_parameters())
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            given = theirs.get(name)
            if given is None:
                continue
            if parameter.shape == given.shape:
                parameter.copy_(given)
            elif parameter.ndim == 2 and parameter.shape[1] == 2 * given.shape[1]:
                nn.init.normal_(parameter, std=0.02)
                parameter[:, given.shape[1] :] = given


def _prepare(head: DraftHead, target: PreTrainedModel) -> None:
    """Make all weights of a head trainable except those shared with the target."""
    head.config._attn_implementation = "sdpa"
    head.config.vocab_size = weight_of(output_head(target)).shape[0]
    head.requires_grad_(True)
    for shared in (input_embedding(target), output_head(target)):
        shared.requires_grad_(False)
    head.train()
