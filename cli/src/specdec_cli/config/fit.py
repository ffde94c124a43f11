"""Checks from files alone whether draft and target fit, and how much memory the draft takes."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from specdec import ConfigError
from specdec.config import CONTEXT_KEYS, VOCABULARY_KEYS, Checkpoint, ResolvedSpeculation, TargetFacts

HIDDEN_KEYS = ("hidden_size", "n_embd", "d_model", "emb_dim", "text_config.hidden_size")
TARGET_HIDDEN_KEYS = ("target_hidden_size", "emb_dim")
"""Keys of a head that hold the hidden size of its target."""
LAYER_KEYS = ("num_hidden_layers", "n_layer", "text_config.num_hidden_layers")
HEAD_KEYS = ("num_attention_heads", "n_head", "text_config.num_attention_heads")
KV_HEAD_KEYS = ("num_key_value_heads", "text_config.num_key_value_heads")
DTYPE_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class Sizes:
    """Sizes read from a checkpoint's files; None where the files do not state them."""

    model: str
    vocab_size: int | None
    hidden_size: int | None
    max_model_len: int | None
    weight_mb: float | None
    """Size of the safetensors files."""
    kv_bytes_per_token: int | None
    """Keys and values of one token in all layers."""


def sizes_of(checkpoint: Checkpoint) -> Sizes:
    """Return the sizes of a checkpoint."""
    heads, hidden = checkpoint.number(*HEAD_KEYS), checkpoint.number(*HIDDEN_KEYS)
    head_dim = checkpoint.number("head_dim", "text_config.head_dim") or (
        hidden // heads if heads and hidden else None
    )
    layers, kv_heads = checkpoint.number(*LAYER_KEYS), checkpoint.number(*KV_HEAD_KEYS) or heads
    config = checkpoint.config or {}
    element = DTYPE_BYTES.get(str(config.get("dtype") or config.get("torch_dtype") or "float32"), 4)
    files = list(checkpoint.directory.glob("*.safetensors")) if checkpoint.directory.is_dir() else []
    return Sizes(
        model=checkpoint.model,
        vocab_size=checkpoint.number(*VOCABULARY_KEYS),
        hidden_size=hidden,
        max_model_len=checkpoint.number(*CONTEXT_KEYS),
        weight_mb=round(sum(file.stat().st_size for file in files) / 1e6, 1) if files else None,
        kv_bytes_per_token=2 * layers * kv_heads * head_dim * element
        if layers and kv_heads and head_dim
        else None,
    )


def check_fit(resolved: ResolvedSpeculation, target: TargetFacts) -> dict[str, object]:
    """Return the sizes of target and draft; vocabulary and context are checked when resolving.

    Raises:
        ConfigError: if the draft is not found, or if it was made for a target of another hidden size.
    """
    report: dict[str, object] = {}
    wanted = None
    if target.model is not None:
        sizes = sizes_of(Checkpoint(target.model))
        report["target"], wanted = asdict(sizes), sizes.hidden_size
    if resolved.config.model is None:
        return report
    draft = Checkpoint(resolved.config.model, resolved.config.revision)
    if draft.config is None and draft.leads_nowhere:
        raise ConfigError(f"speculative_config: 'model': {draft.problem}")
    takes = draft.number(*TARGET_HIDDEN_KEYS)
    if takes is not None and wanted is not None and takes != wanted:
        raise ConfigError(
            f"speculative_config: 'model': {draft.model} was made for hidden states of size {takes}, "
            f"those of the target have {wanted}"
        )
    return report | {"draft": asdict(sizes_of(draft))}
