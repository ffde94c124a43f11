"""Chooses the attention of a runner: a backend's if it agrees with torch on this device, else torch's."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from specdec import registry
from specdec.backends import first_offer
from specdec.errors import ConfigError
from specdec.interfaces import Declined
from specdec.registry import Group
from specdec_runtime.backends.models import of_models
from specdec_runtime.interfaces.attention import AttentionFactory, AttentionNeeds
from specdec_runtime.interfaces.forward import HostRows, PackedBatch, Segment
from specdec_runtime.interfaces.kv_cache import KVCache, LayerShape

if TYPE_CHECKING:
    from transformers import PretrainedConfig

logger = logging.getLogger("specdec")

TORCH = "sdpa"
"""Name of torch's own attention."""
_SPACING = 64
"""Slots between the starts of two consecutive requests of the probe."""
_CACHED_AND_NEW = ((0, 19), (21, 1), (17, 4))
"""Cached rows and new rows of each request: a prompt, a step without a draft, and a tree."""
_PARENTS = (-1, 0, 0)
"""Parents of the tree's nodes, which follow the request's last token."""
_TOLERANCES = {torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""Largest allowed difference of outputs for standard normal values: a few units in the last place of the dtype.

For float32 the unit is that of TF32, because torch rounds to TF32 where that is allowed and the kernels do not.
"""


def check_name(wanted: str) -> None:
    """Check a value of the option `attention_backend` before a model is loaded.

    Raises:
        ConfigError: if it names nothing that is installed or official.
    """
    names = dict.fromkeys(("auto", TORCH, "triton", *(i.name for i in registry.installed(Group.BACKENDS))))
    if wanted not in names:
        raise ConfigError(f"LLM: attention_backend={wanted!r} must be one of {', '.join(names)}")


def choose_attention(
    wanted: str, needs: AttentionNeeds, config: PretrainedConfig, own: AttentionFactory
) -> AttentionFactory:
    """Return the factory for a value of the option `attention_backend`.

    Args:
        wanted: `auto` asks every backend, `sdpa` takes torch's attention, other values name a backend.
        needs: what the model needs.
        config: the model's configuration; a backend is tried with its head counts and head size.
        own: torch's attention.

    Raises:
        ConfigError: if a backend is named and cannot be used here.
    """
    if wanted == TORCH:
        return own
    answer = first_offer(
        "the attention",
        lambda backend: of_models(backend).attention(needs),
        lambda offered: disagreement(offered, own, needs, config),
        None if wanted == "auto" else wanted,
    )
    if not isinstance(answer, Declined):
        return answer
    if wanted != "auto":
        raise ConfigError(
            f"LLM: attention_backend={wanted!r} cannot be used here ({answer.reason}): leave it out"
        )
    if needs.device.type == "cuda":
        logger.warning("attention runs through torch (%s)", answer.reason)
    return own


@torch.inference_mode()
def disagreement(
    factory: AttentionFactory, own: AttentionFactory, needs: AttentionNeeds, config: PretrainedConfig
) -> str | None:
    """Return in a few words how a backend's attention differs from torch's on a device; None if they agree.

    Args:
        factory: the backend's.
        own: torch's.
        needs: device, and dtype of keys and values.
        config: the model's configuration; the probe uses its head counts and head size.
    """
    worst = 0.0
    for shape in _shapes(config.get_text_config()):
        got, expected = (_attend(make, needs, shape) for make in (factory, own))
        worst = max(worst, (got - expected).abs().max().nan_to_num(torch.inf).item())
    if worst > _TOLERANCES.get(needs.dtype, 0.0):
        return f"its attention differs from torch's by {worst:.2g}"
    return None


def _shapes(config: PretrainedConfig) -> set[tuple[int, int, int]]:
    """Return the number of query heads, the number of key-value heads, and the head size; one for each kind of layer."""
    found = set()
    for layer in getattr(config, "per_layer_config", None) or [config]:
        heads: int | None = getattr(layer, "num_attention_heads", None)
        if heads is None:
            continue  # no layer attends
        width = getattr(layer, "head_dim", None) or layer.hidden_size // heads
        found.add((heads, getattr(layer, "num_key_value_heads", None) or heads, width))
    return found


def _attend(make: AttentionFactory, needs: AttentionNeeds, shape: tuple[int, int, int]) -> torch.Tensor:
    """Return the attention output `[T, H, D]` of the probe's pass, in float32."""
    heads, kv_heads, width = shape
    device, dtype = needs.device, needs.dtype
    generator = torch.Generator().manual_seed(0)

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=generator).to(device, dtype)

    batch = _batch(device)
    cache = KVCache(_SPACING * (len(batch.segments) + 1), device)
    cache.allocate(0, LayerShape(kv_heads, width, width, dtype))
    for stored in (cache.keys[0], cache.values[0]):
        stored.copy_(normal(*stored.shape))
    rows = batch.num_rows
    output = make(cache, _SPACING).attend(
        0,
        batch,
        normal(rows, heads, width),
        normal(rows, kv_heads, width),
        normal(rows, kv_heads, width),
        scaling=width**-0.5,
    )
    return output.float().cpu()


def _batch(device: torch.device) -> PackedBatch:
    segments, positions, row = list[Segment](), list[npt.NDArray[np.int64]](), 0
    for request, (cached, new) in enumerate(_CACHED_AND_NEW):
        segments.append(Segment(row, new, _SPACING * (request + 1), cached))
        positions.append(np.arange(cached, cached + new))
        row += new
    slots = np.concatenate([s.first_slot + each for s, each in zip(segments, positions, strict=True)])
    segments[-1].num_drafted = len(_PARENTS)
    positions[-1] = segments[-1].set_parents(_PARENTS)
    rows = HostRows(np.zeros(row, np.int64), np.concatenate(positions), slots, None)
    batch = PackedBatch.of_rows(rows, segments, device)
    batch.send()
    return batch
