"""Operations of speculative decoding on the device, each with a plain torch reference.

Triton is imported when a kernel is first launched. Operations have the same names as their folders. Therefore this module
imports them eagerly, so each name refers to the function; with lazy loading it would refer to the folder's module.
"""

from __future__ import annotations

from specdec_kernels.triton.accepted_rows import accepted_rows
from specdec_kernels.triton.advance_rows import LoopRows, Masks, advance_rows
from specdec_kernels.triton.append_tokens import append_tokens
from specdec_kernels.triton.block_tables import block_tables
from specdec_kernels.triton.dispatch import Backend, use_backend
from specdec_kernels.triton.gumbel_sample import gumbel_sample
from specdec_kernels.triton.kv_compact import kv_compact
from specdec_kernels.triton.kv_write import kv_write
from specdec_kernels.triton.list_logprobs import list_logprobs
from specdec_kernels.triton.matmul_invariant import matmul_invariant
from specdec_kernels.triton.move_rows import NUM_GROWING, PassRows, move_rows
from specdec_kernels.triton.ngram_match import ngram_match
from specdec_kernels.triton.noise import NoiseKeys, gumbel_noise, uniforms
from specdec_kernels.triton.paged_attention import pack_tree_mask, paged_attention
from specdec_kernels.triton.penalise import PathRows, Texts, penalise
from specdec_kernels.triton.process_logits import Cuts, process_logits
from specdec_kernels.triton.results import ChainDraft, PathVerdict
from specdec_kernels.triton.rms_norm import NormOutput, rms_norm
from specdec_kernels.triton.rope_kv_write import HeadNorms, rope_kv_write
from specdec_kernels.triton.silu_mul import silu_mul
from specdec_kernels.triton.strict_verify import RequestCuts, strict_verify

__all__ = [
    "NUM_GROWING",
    "Backend",
    "ChainDraft",
    "Cuts",
    "HeadNorms",
    "LoopRows",
    "Masks",
    "NoiseKeys",
    "NormOutput",
    "PassRows",
    "PathRows",
    "PathVerdict",
    "RequestCuts",
    "Texts",
    "accepted_rows",
    "advance_rows",
    "append_tokens",
    "block_tables",
    "gumbel_noise",
    "gumbel_sample",
    "kv_compact",
    "kv_write",
    "list_logprobs",
    "matmul_invariant",
    "move_rows",
    "ngram_match",
    "pack_tree_mask",
    "paged_attention",
    "penalise",
    "process_logits",
    "rms_norm",
    "rope_kv_write",
    "silu_mul",
    "strict_verify",
    "uniforms",
    "use_backend",
]
