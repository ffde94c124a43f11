"""Differences between target families: tensor names, and how token and state are joined."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Layout:
    """The multi-token-prediction layers of a family.

    Names are templates without the final `.weight`: `{i}` counts the layers from 0, `{n}` continues after the target's own.
    A name with neither is shared by all layers.

    Args:
        family: name in errors.
        model_types: `model_type` of the targets whose layers it describes: others may use the same names for other layers.
        prefixes: prefixes of its tensor names; every tensor with such a prefix must be used.
        join: the projection `[H, 2H]` that joins token and state.
        embed_norm: norm of the token's embedding.
        feature_norm: norm of the state.
        block: name prefix of the decoder layer.
        norm: norm before the output projection.
        embed_tokens: the layer's own embedding; None for the target's.
        lm_head: the layer's own output projection; None for the target's.
        is_feature_first: whether the state comes before the embedding in the joined vector.
        block_type: `model_type` of the decoder layers; None for the target's.
        attention_type: entry of `layer_types` for its layers; None for that of the target's last layer.
        reads_unnormed: whether the states are those before the target's final norm, and not those after it.
        carries_unnormed: whether the next step takes the state before `norm`, and not the one after it.
        has_llama_rotary: whether rotary embedding works in halves, as in Llama; layers that rotate pairs are not compiled.
    """

    family: str
    model_types: tuple[str, ...]
    prefixes: tuple[str, ...]
    join: str
    embed_norm: str
    feature_norm: str
    block: str
    norm: str
    embed_tokens: str | None = None
    lm_head: str | None = None
    is_feature_first: bool = False
    block_type: str | None = None
    attention_type: str | None = None
    reads_unnormed: bool = False
    carries_unnormed: bool = False
    has_llama_rotary: bool = True

    def published(self, name: str, layer: int, first: int) -> str:
        """Return the published name of a tensor.

        Args:
            name: its name in a stage of `MtpHead`, such as `join.weight` or `layers.0.mlp.up_proj.weight`.
            layer: index of the layer, from 0.
            first: value of `{n}` for layer 0.
        """
        part, _, rest = name.partition(".")
        if part == "layers":
            return filled(self.block, layer, first) + rest.removeprefix("0.")
        template = getattr(self, part)
        assert isinstance(template, str)
        return f"{filled(template, layer, first)}.{rest}"

    def is_shared(self, part: str) -> bool:
        """Return whether a part, such as `join`, is shared by all layers."""
        return "{" not in getattr(self, part)


def filled(template: str, layer: int, first: int) -> str:
    """Return a template with its numbers filled in."""
    return template.format(i=layer, n=first + layer)
