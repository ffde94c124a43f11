"""What the engine's metrics count, for `/metrics` and for Ray."""

from __future__ import annotations

from specdec.metrics import PerProposer, Vector

ENGINE_METRICS = {
    "vllm:spec_decode_num_drafts": "Drafts verified: one for each request and step with at least one drafted token.",
    "vllm:spec_decode_num_draft_tokens": "Drafted tokens verified, all nodes of a tree included.",
    "vllm:spec_decode_num_accepted_tokens": "Drafted tokens accepted, without the token that verification adds.",
    "vllm:spec_decode_num_accepted_tokens_per_pos": "Drafts of which the token at this position, from 0, was accepted.",
    "vllm:num_preemptions": "Samples that lost their place in the KV cache to others and were queued again.",
    "vllm:inter_token_latency_seconds": "Seconds between two steps that added tokens to the same sample.",
    "vllm:num_requests_running": "Samples that run now.",
    "vllm:num_requests_waiting": "Samples that wait for a place now.",
    "vllm:kv_cache_usage_perc": "Fraction of the target's KV cache that running samples hold now, 0 to 1.",
    "specdec:num_steps": "Steps of the engine: one pass over the target each.",
    "specdec:num_sample_steps": "Steps that added tokens, once per sample: num_emitted_tokens over it is tokens per step.",
    "specdec:num_emitted_tokens": "Tokens that steps added to samples: accepted drafted ones and the target's own.",
    "specdec:num_preemptions": "The same as vllm:num_preemptions_total.",
    "specdec:schedule_seconds": "Seconds of steps spent choosing requests and placing them in the KV cache.",
    "specdec:propose_seconds": "Seconds of steps spent drafting; on a GPU until the work is launched.",
    "specdec:score_seconds": "Seconds of steps spent in the target's pass.",
    "specdec:verify_seconds": "Seconds of steps spent deciding which drafted tokens are accepted.",
    "specdec:commit_seconds": "Seconds of steps spent appending tokens, detokenizing and looking for stops.",
    "specdec:proposer_drafts": "Drafts verified, by proposer: with composite and auto by the member that drafted.",
    "specdec:proposer_draft_tokens": "Drafted tokens verified, by proposer.",
    "specdec:proposer_accepted_tokens": "Drafted tokens accepted, by proposer.",
    "specdec:proposer_errors": "Exceptions of the proposer; each cost the drafts of one step.",
    "specdec:proposer_nodes_cut": "Drafted tokens that were malformed or too many and were cut off unverified.",
    "specdec:proposer_overruns": "Calls of the proposer that took longer than its time budget.",
    "specdec:proposer_pauses": "Times that the proposer was paused after repeated errors or overruns.",
    "specdec:prefix_tokens_rerun": "Cached prompt tokens that the target computed again since the proposer did not hold them.",
    "specdec:requests_left_out": "Times that a request was left without drafts: no room in the draft's cache, or states lost.",
    "specdec:requests_returned": "Requests left out for which the proposer was told everything again.",
    "specdec:tokens_rerun": "Tokens of requests that returned, which the target computed again.",
    "specdec:tokens_without_drafts": "Tokens emitted while the proposer was paused, suspended or left the request out.",
    "specdec:steps_without_drafts": "Steps in which adaptive allowed no draft.",
    "specdec:steps_with_shorter_drafts": "Steps in which adaptive allowed fewer drafted tokens than configured.",
    "specdec:observer_errors": "Exceptions of observer plugins.",
    "specdec:unfused_models": "Models and stages that run their own forward since no faster form fitted.",
    "specdec:adapter_passes": "Passes with rows of adapters, which the model's own forward runs.",
    "specdec:kv_cache_tokens": "Tokens that the KV cache holds at most.",
    "specdec:kv_cache_bytes": "Bytes of the KV caches of the target and the proposer's models.",
    "specdec:graph_replays": "Passes replayed from a recorded CUDA graph.",
    "specdec:graph_misses": "Passes for which no recorded CUDA graph fitted.",
    "specdec:graph_failures": "Kinds of passes of which recording a CUDA graph failed.",
    "specdec:graph_recordings": "CUDA graphs recorded so far.",
    "specdec:graph_bytes": "Bytes that recorded CUDA graphs hold now.",
}
"""By name, without the `_total` of counters."""


def about(name: str) -> str:
    """Return the sentence about a metric; a scorer's own counts have none but their names."""
    return ENGINE_METRICS.get(name, f"{name.partition(':')[2].replace('_', ' ')}, as the scorer counts it.")


def labelled(metric: Vector | PerProposer) -> tuple[str, dict[str, int]]:
    """Return the label that tells the numbers of a metric apart, and these by its values."""
    if isinstance(metric, PerProposer):
        return "proposer", metric.values
    return "position", {str(position): value for position, value in enumerate(metric.values)}
