"""Engines over tiny models, and a look inside."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import tokenizers
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from speccheck.models import MAX_LEN, VOCAB, copied
from specdec import LLM, EngineOptions, SamplingParams
from specdec.engine import Engine
from specdec.interfaces import Proposer
from specdec_runtime.loading.target import LoadedTarget, load_target

LETTERS = "abcdefghijkl"


@cache
def zoo() -> LoadedTarget:
    """Return the zoo's target in float32, loaded once in a process; engines share its weights."""
    return load_target(EngineOptions(model="zoo", dtype="float32"))


def make_llm(model: PreTrainedModel, speculation: dict[str, Any] | None = None, **arguments: Any) -> LLM:
    """Return an engine over a copy of a tiny model."""
    known = {"max_model_len": MAX_LEN, "max_num_seqs": 8, "skip_tokenizer_init": "tokenizer" not in arguments}
    own = copied(model)
    if arguments.get("device") == "cuda" and torch.cuda.is_available():
        own.to("cuda")
    return LLM(own, speculative_config=speculation, **known | arguments)


def scripted(name: str = "Scripted", k: int = 4, **keys: Any) -> dict[str, Any]:
    """Return the configuration of one of `speccheck.proposers`."""
    return {"method": f"speccheck.proposers.{name}", "num_speculative_tokens": k} | keys


def greedy(max_tokens: int | None, **keys: Any) -> SamplingParams:
    """Return greedy parameters that ignore the end of text."""
    return SamplingParams(**{"temperature": 0.0, "max_tokens": max_tokens, "ignore_eos": True} | keys)


def tokens_of(llm: LLM, prompts: Sequence[list[int]], params: Any) -> list[list[int]]:
    """Generate and return the token ids of the first samples."""
    return [output.outputs[0].token_ids for output in llm.generate(list(prompts), params)]


def engine_of(llm: LLM) -> Engine:
    """Return the engine inside."""
    return llm._built.engine


def proposer_of(llm: LLM) -> Any:
    """Return the proposer inside, connected to its engine if it keeps books."""
    guard = engine_of(llm)._speculation._guard
    assert guard is not None
    proposer: Proposer = guard.proposer
    if hasattr(proposer, "engine"):
        proposer.engine = engine_of(llm)
    return proposer


def letter_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer whose token i is two letters, so that strings run across tokens."""
    names = [LETTERS[i // 12] + LETTERS[i % 12] for i in range(VOCAB)]
    inner = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({name: i for i, name in enumerate(names)}, unk_token=names[0])
    )
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex(".{2}"), "isolated")
    inner.decoder = tokenizers.decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=inner)


def spelled(tokens: Sequence[int]) -> str:
    """Return the text of tokens of `letter_tokenizer`."""
    return "".join(LETTERS[t // 12] + LETTERS[t % 12] for t in tokens)
