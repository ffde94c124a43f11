"""The arguments of `LLM` and the keys of `speculative_config`, for editors and type checkers.

Written by `scripts/generate_types.py` from the option classes; `make docs` brings it up to date.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict


class LLMOptions(TypedDict, total=False):
    """The keyword arguments of `LLM` and `AsyncLLM`; see `EngineOptions`."""

    gguf_file: str | None
    """Name of the GGUF file in the folder or hub repository `model`, if there are several."""
    tokenizer: Any
    """A path, a hub id or a tokenizer; None means the model's own."""
    revision: str | None
    """Branch, tag or commit of a hub repository."""
    dtype: Any
    """`auto`, `float32`, `bfloat16`, `float16`, `float64` or a `torch.dtype`."""
    weights: str
    """`published`: weights of 4 to 8 bits (GGUF, GPTQ, AWQ, compressed-tensors) stay as small as in the file, where a
    backend multiplies with them (on the CPU, with `specdec-kernels`), and `dtype` is that of activations; `widen`: they
    are dequantised to `dtype`, as everywhere else."""
    activation_bits: int | None
    """8: inputs of products with weights in blocks are rounded to 8 bits by block of 32, which is faster and less
    exact; None: as exact as `dtype`."""
    seed: int | None
    """Seed for requests without their own seed; None means fresh noise in every run."""
    max_model_len: int | None
    """Maximum context length, output included; None means the model's."""
    max_num_seqs: int
    """Maximum number of requests that run at once."""
    max_num_batched_tokens: int
    """Maximum number of rows in one pass: prompt tokens, last committed tokens and drafted tokens."""
    scheduling_policy: str
    """`fcfs`: first come, first served; `priority`: requests with a lower `priority` run first and are preempted
    last."""
    async_scheduling: bool | None
    """Launch a step before the tokens of the one before are read, where nothing on the host needs them; None means on
    devices other than the CPU. Texts are the same."""
    enforce_eager: bool
    """Run the model's own forward, without fused layers or captured graphs."""
    gpu_memory_utilization: float
    """Fraction of a GPU's memory that this engine may take for weights, KV caches and captured graphs."""
    kv_cache_memory_bytes: int | None
    """Bytes for KV caches; None means what fits (on the CPU: a quarter of the free memory)."""
    num_gpu_blocks_override: int | None
    """Number of KV cache blocks, on any device, whatever memory they need; None means as many as fit."""
    enable_prefix_caching: bool
    """Reuse the keys and values of equal prefixes."""
    block_size: int
    """Tokens per block of the prefix cache."""
    trust_remote_code: bool
    """Run code from the model's repository."""
    allow_pickle: bool
    """Also load checkpoints that are not safetensors; unpickling runs code from the file."""
    device: str | None
    """A torch device; None means a GPU if there is one, else the CPU."""
    device_map: Any
    """`auto`, or a mapping from module names to devices: layers on several devices, which run one after another."""
    tensor_parallel_size: int
    """Number of processes that share the model, one device each; the engine starts them."""
    scorer: str
    """The scorer, which runs the target: name of a plugin (`specdec.scorers`), or path of a class,
    `./file.py:Class`."""
    attention_backend: str
    """Attention implementation: `sdpa` is torch's, on any device; `triton`, or the name of another backend, is that
    backend's; `auto` uses the first backend's that runs and agrees with torch when the model is loaded, and torch's
    otherwise."""
    deterministic: bool
    """Batch-invariant logits: each token gets bitwise the same logits whatever else is in the batch and however many
    tokens are verified at once. The same seed then gives the same text with and without speculation, in bfloat16
    too."""
    strict_drafts: bool
    """Raise on malformed drafts instead of cutting them."""
    reasoning_config: Any
    """How the model marks its reasoning, for `thinking_token_budget` and counts of reasoning tokens:
    `reasoning_start_str`, `reasoning_end_str`, and if the latter has a sentence before the end marker, that alone as
    `reasoning_close_str`."""
    enable_lora: bool
    """Serve adapters (LoRA) that requests bring as `LoRARequest`; on without saying so with `lora_modules`."""
    lora_modules: Any
    """Adapters to load now, by the names that requests choose them by: a mapping from names to directories or hub ids
    in PEFT's format, or vLLM's list of `NAME=PATH`."""
    max_lora_rank: int
    """The highest rank of an adapter; one with a higher rank is refused."""
    max_cpu_loras: int
    """How many adapters that requests brought stay loaded; the one that was not used for longest leaves."""
    skip_tokenizer_init: bool
    """Load no tokenizer: prompts are token ids and outputs have no text."""


class SpeculativeOptions(TypedDict, total=False):
    """The keys of `speculative_config`: common ones, then those of the official methods and samplers. Those of another
    method: a subclass with its keys, or a mapping of type `Any`."""

    method: str | None
    """How tokens are guessed; inferred from `model` where left out."""
    model: str | Path | None
    """Directory, hub id or GGUF file of the draft, `zoo`, or the path of a class."""
    num_speculative_tokens: int | None
    """The most tokens drafted in one step for one request (k)."""
    draft_tensor_parallel_size: int | None
    """Ranks the draft is spread over: 1 or the target's. Default: the target's; heads are on one."""
    max_model_len: int | None
    """The longest context the draft may use. Default: the smaller of draft and target."""
    parallel_drafting: bool
    """Draft all tokens in one pass with mask tokens, with drafts trained for it."""
    rejection_sample_method: str
    """The sampler: how drafts are verified."""
    draft_sample_method: Literal["greedy", "probabilistic", "coupled"] | None
    """How a model drafts: best token, drawn with q kept, or drawn with the noise of `strict`. Default: what the sampler
    accepts most, `coupled` for `strict` and `probabilistic` where q is used."""
    quantization: str | None
    """Quantisation of the draft's weights."""
    revision: str | None
    """Revision of `model` on a hub."""
    disable_by_batch_size: int | None
    """Draft nothing while more requests than this run; the proposer is told later what was written."""
    num_speculative_tokens_per_batch_size: Sequence[Sequence[int]] | None
    """Rows of [first batch size, last batch size, k]; other batch sizes keep the full k."""
    adaptive: bool | None
    """Shorten drafts, or leave them out for a while, where by measurement they do not pay; false: always k tokens. What
    samplers other than `strict` draw then depends on how fast the machine is; its distribution does not. Default: true
    with `strict`, false with others and in other engines."""
    on_proposer_error: Literal["fallback", "raise"]
    """After an error in a proposer go on without drafts, or raise it."""
    attention_window: int | None
    """Newest rows of the cache that a draft attends to, beside the first 4; all where left out. For long contexts, on
    models with a compiled form on the CPU."""
    aux_layer_ids: Sequence[int] | None
    """The target's layers whose inputs the head reads, where its `config.json` tells others or none; k is the input of
    layer k, which is the output of layer k - 1."""
    draft_confidence_threshold: float
    """A draft ends after the first token whose probability, the draft's own, is below this; 0 for never."""
    draft_margin: float
    """A draft ends after the first token that is ahead of the next best one by less than this, in logits over the
    temperature with the noise of the draw: there draft and target often differ. 0 for never. On models with a compiled
    form on the CPU, for chains without q, grammars and draft_confidence_threshold."""
    draft_vocab_size: int | None
    """Ids that a draft names, the more frequent ones by their numbers. Chains without q on the CPU name those of their
    request's text besides, if the output projection is the embedding. By default all; on the CPU an eighth of the
    vocabulary, at least 32,768, where these are named, else a quarter, at least 49,152, if that is at most half of
    it."""
    dtype: str
    """Type of the draft's weights; `auto` for the target's."""
    group_size: int
    """Inputs that share a scale of int4: a power of two. Smaller groups are more exact and take more memory."""
    head_weights: Literal["auto", "int8", "int4", "own"] | None
    """Weights of the output projection; by default as `weights`."""
    mask_token_id: int | None
    """The mask token, where the head's `config.json` names none."""
    match: Literal["recent", "first"]
    """`recent` copies from the most recent earlier occurrence, and goes on periodically where the text ends before the
    draft does; `first` copies from the earliest one and stops with the text, as vLLM does."""
    min_probability: float
    """Least estimated probability that a drafted token is accepted; lower where verified rows cost little."""
    min_promise: float
    """With `cascade`: a draft that is likely to bring so many tokens, by the confidence its method gives, is taken
    without asking the proposers behind; drafts without confidence promise all their tokens."""
    norm_output: bool | None
    """Whether the next token's state is taken after the final norm, where `config.json` tells wrongly: heads that
    SpecForge wrote with `norm_output` before 15 September 2026 were trained without."""
    num_successors: int
    """Probable ids that are kept after each id of the vocabulary."""
    policy: str
    """`choose`: what has the most expected tokens per second, by measurement; `cascade`: the first that promises
    enough; `longest`; `extend`: each goes on where the one before ends; `merge`: one tree of all; or the path of a
    class."""
    posterior_alpha: float
    """Lossy: factor of exp(-entropy), the bound where that is lower (delta)."""
    posterior_threshold: float
    """Lossy: a token with a higher probability is always accepted (epsilon)."""
    prompt_lookup_max: int | None
    """The longest n-gram to look for; prompt_lookup_min where missing, else 4."""
    prompt_lookup_min: int | None
    """The shortest n-gram that counts as a match; prompt_lookup_max where missing, else 2. `ngram` keeps 5 to 14 bytes
    per token and length."""
    proposers: Sequence[SpeculativeOptions]
    """Not to be given: `composite` takes a list of your own."""
    sample_from_anchor: bool | None
    """Whether the row of the last committed token predicts, so that a block has one guess more; None for what the
    head's `config.json` says."""
    skip_layers: int | Sequence[int]
    """Layers that the draft leaves out: their numbers from 0, or how many. Then it is those without which the target's
    distributions over a short text change least, each tried alone when the target is loaded."""
    suffix_decoding_cache_path: str | Path | None
    """A file of responses: read at the start if it exists, written when the proposer ends. `specdec suffix warm` makes
    one. `zoo`: the responses that specdec-zoo has for the target, which are only read."""
    suffix_decoding_max_cached_requests: int
    """How many responses of finished requests, each with the last tokens of its prompt, are drafted from, the oldest
    leaving first; 0: none, only the request's own text."""
    suffix_decoding_max_spec_factor: float
    """The most tokens drafted per token matched."""
    suffix_decoding_max_tree_depth: int
    """The longest match and draft together, in tokens; a tree takes memory and time in proportion."""
    suffix_decoding_min_token_prob: float
    """A token is drafted only while its path is at least this likely, by counts in the tree."""
    suffix_decoding_time_budget_ms: float
    """Processor time for the trees in one step; rows left over get no draft in it, and catch up later."""
    synthetic_acceptance_length: float | None
    """Mean acceptance length, bonus token counted."""
    synthetic_acceptance_rate: float | None
    """Share of drafted tokens that are accepted, falling geometrically by position."""
    synthetic_acceptance_rates: Sequence[float] | None
    """For each position the rate at which a token is accepted together with all before it; never rising."""
    tree_choices: Sequence[Sequence[int]] | None
    """A static tree as paths of ranks, such as [[0], [1], [0, 0]]; a rank counts candidates from 0."""
    tree_depth: int | None
    """The deepest node of a tree; by default 5 for trees expanded by confidence."""
    tree_top_k: int
    """Candidates for each position; the first one is continued, the others are leaves. 1 for chains."""
    use_heterogeneous_vocab: bool
    """Draft only tokens that both vocabularies have (TLI, arXiv 2502.05202)."""
    use_tree_spec: bool
    """Draft the likeliest nodes as a tree instead of the likeliest path."""
    vllm_defaults: bool
    """Where neither length is given take vLLM's, which is 5 for both."""
    weights: Literal["auto", "int8", "int4", "own"]
    """Weights of the draft: int8 with a scale for each output, or int4 with a scale for each group of inputs. auto:
    int4 where the target's weights had 4 bits before they were widened, as those of many GGUF files, else int8. own:
    the target's own, with skip_layers or attention_window."""
