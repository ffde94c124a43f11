"""Tokenizers that split characters into bytes, built by their publishers' own classes, and requests that emit given ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import transformers as hf
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.convert_slow_tokenizer import bytes_to_unicode

from speccheck.models import MAX_LEN, make
from specdec import SamplingParams

_WORDS = ("▁", "▁caf", "caf", "▁Hi", "Hi", "x", "▁x", "X", "YZ", "é", "\ufffd", "▁\ufffd", "A", "▁A")
_RAW = tuple(f"<0x{byte:02X}>" for byte in range(256))


def llama_tokenizer() -> PreTrainedTokenizerBase:
    """Return Llama 2's kind: byte fallback, and a decoder that strips the first blank."""
    return hf.LlamaTokenizer(vocab=_numbered("<unk>", "<s>", "</s>", *_RAW, *_WORDS), merges=[])


def gemma_tokenizer() -> PreTrainedTokenizerBase:
    """Return Gemma's kind: byte fallback, no strip."""
    return hf.GemmaTokenizer(
        vocab=_numbered("<pad>", "<eos>", "<bos>", "<unk>", "<mask>", *_RAW, *_WORDS), merges=[]
    )


def byte_level_tokenizer() -> PreTrainedTokenizerBase:
    """Return GPT-2's kind: tokens are bytes, some of them a blank and half a character."""
    letters = bytes_to_unicode()
    spelled = [
        "".join(letters[byte] for byte in raw) for raw in (b" x", b" \xe2\x96", b"\xef\xbf\xbd", b"\x93\xe2")
    ]
    return hf.GPT2Tokenizer(vocab=_numbered("<|endoftext|>", *letters.values(), *spelled), merges=[])


TOKENIZERS = {"llama": llama_tokenizer, "gemma": gemma_tokenizer, "byte level": byte_level_tokenizer}


def raw_ids(tokenizer: PreTrainedTokenizerBase, data: bytes) -> list[int]:
    """Return the ids of single bytes."""
    letters = bytes_to_unicode()
    known = tokenizer.get_vocab()
    return [known[_RAW[byte] if _RAW[byte] in known else letters[byte]] for byte in data]


def ids_of(tokenizer: PreTrainedTokenizerBase, *tokens: str | bytes) -> list[int]:
    """Return the ids of tokens by name; bytes stand for one id each."""
    found: list[int] = []
    for token in tokens:
        found += raw_ids(tokenizer, token) if isinstance(token, bytes) else [tokenizer.get_vocab()[token]]
    return found


def speaker(tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """Return a tiny model with as many ids as the tokenizer."""
    return make(
        hf.LlamaConfig(
            vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=MAX_LEN, bos_token_id=None, eos_token_id=None,
        )
    )  # fmt: skip


def saying(token_ids: Sequence[int], **keys: Any) -> SamplingParams:
    """Return parameters of a request whose output is these tokens."""

    def only_next(output: list[int], logits: torch.Tensor) -> torch.Tensor:
        forced = torch.full_like(logits, -torch.inf)
        forced[token_ids[min(len(output), len(token_ids) - 1)]] = 0.0
        return forced

    given = {"temperature": 0.0, "ignore_eos": True, "max_tokens": len(token_ids)} | keys
    return SamplingParams(logits_processors=[only_next], **given)


def _numbered(*tokens: str) -> dict[str, int]:
    return {token: number for number, token in enumerate(dict.fromkeys(tokens))}
