"""What families of targets differ in: names of tensors, and how a token is joined with a state."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Layout:
    """Where a family keeps its multi-token-prediction layers.

    Names are templates without the final `.weight`: `{i}` counts the layers from 0, `{n}` counts on from the target's own.
    What has neither belongs to all layers together.

    Args:
        family: what errors call it.
        prefixes: what names of its tensors begin with; nothing else may be there.
        join: the map `[H, 2H]` that joins token and state.
        embed_norm: norm of the token's embedding.
        feature_norm: norm of the state.
        block: what the names of the decoder layer begin with.
        norm: norm before the output projection, whose output is also what the next step takes.
        embed_tokens: an embedding of its own, where there is one; else the target's.
        lm_head: an output projection of its own, likewise.
        is_feature_first: whether the state comes before the embedding in the joined vector.
        block_type: `model_type` whose decoder layers these are; None for the target's.
        attention_type: entry of `layer_types` for its layers; None for that of the target's last one.
        has_llama_rotary: whether positions are rotated as Llama's are, in halves; what is rotated in pairs is not compiled.
    """

    family: str
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
    has_llama_rotary: bool = True

    def published(self, name: str, layer: int, first: int) -> str:
        """Return the published name of a tensor.

        Args:
            name: its name in a stage of `MtpHead`, such as `join.weight` or `layers.0.mlp.up_proj.weight`.
            layer: which layer, counted from 0.
            first: what `{n}` is for layer 0.
        """
        part, _, rest = name.partition(".")
        if part == "layers":
            return filled(self.block, layer, first) + rest.removeprefix("0.")
        template = getattr(self, part)
        assert isinstance(template, str)
        return f"{filled(template, layer, first)}.{rest}"

    def is_shared(self, part: str) -> bool:
        """Return whether a part, such as `join`, belongs to all layers together."""
        return "{" not in getattr(self, part)


def filled(template: str, layer: int, first: int) -> str:
    """Return a template with its numbers."""
    return template.format(i=layer, n=first + layer)
