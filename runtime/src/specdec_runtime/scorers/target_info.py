"""What proposers are told of a target."""

from __future__ import annotations

from specdec import EngineOptions
from specdec.interfaces import Capability, TargetInfo
from specdec.text import fingerprint
from specdec_runtime.loading.target import LoadedTarget, end_of_text_ids
from specdec_runtime.models import has_blocks, output_head

_NOT_WITH_STATES = {Capability.TREE, Capability.TARGET_CACHE}
"""States follow one path, and drafts on the target's cache would overwrite them."""


def info_of(target: LoadedTarget, options: EngineOptions, *, has_states: bool) -> TargetInfo:
    """Return the facts; `has_states` says whether the target has layers that keep states."""
    config = target.model.config.get_text_config()
    return TargetInfo(
        vocab_size=getattr(output_head(target.model), "out_features", None) or config.vocab_size,
        hidden_size=config.hidden_size,
        num_layers=config.num_hidden_layers,
        max_model_len=target.max_model_len,
        dtype=target.dtype,
        device=target.device,
        eos_token_ids=end_of_text_ids(target.model, target.tokenizer),
        tokenizer_fingerprint=fingerprint(target.tokenizer),
        max_num_seqs=options.max_num_seqs,
        prefix_block_size=options.block_size if options.enable_prefix_caching else 0,
        may_record=not options.enforce_eager,
        has_narrow_weights=has_blocks(target.model),
        gives=TargetInfo.gives - (_NOT_WITH_STATES if has_states else set()),
    )
