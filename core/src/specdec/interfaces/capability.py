"""Capabilities: what a proposer needs from the target and what it provides with its drafts."""

from __future__ import annotations

from enum import Enum


class Capability(Enum):
    """One thing that a proposer needs or provides. Core checks capabilities, never the name of a method.

    The class attribute `Proposer.capabilities` lists everything that the method can do. The instance
    attribute, set in `__init__`, lists what this configuration does. It must not
    change after `__init__`.
    """

    HIDDEN_STATES = "hidden_states"
    """Needs `ProposeBatch.hidden_states`: the target's final-norm output that predicted each new token."""

    AUX_HIDDEN_STATES = "aux_hidden_states"
    """Needs `ProposeBatch.aux_hidden_states`: the inputs of the target layers in `Proposer.aux_layer_ids`."""

    OWN_KV = "own_kv"
    """Keeps its own KV cache, made with `TargetHandle.make_runner`."""

    TARGET_TOP_K = "target_top_k"
    """Needs `ProposeBatch.top_k`: the `Proposer.num_top_k` most probable ids at every verified node."""

    TARGET_CACHE = "target_cache"
    """Drafts on the target's own cache, with a runner of `TargetHandle.make_target_runner`, or reads committed tokens' rows
    there, with `TargetHandle.make_cache_reader`. A pass for row i of a batch may write only the slots
    `first_slots[i] + num_tokens[i] - 1` to `first_slots[i] + num_tokens[i] + max(max_nodes) - 1`: those of the last committed
    token and of drafted tokens, which verification overwrites with the target's own rows. Passes that would write elsewhere
    raise. Rows before these slots are the target's; rows of a step are gone in the next one."""

    REQUEST_TABLE = "request_table"
    """Needs `ProposeBatch.table` and `lines`: the committed tokens of all requests, on the target's device."""

    BEFORE_VERDICT = "before_verdict"
    """Drafts from what is on the device: `ProposeBatch.table`, or the verdict that is at `verdict`. On a device it is asked as
    soon as verification has begun there, before the host has the tokens: the table then ends with them, `num_unread` says how
    many there may be, and everything else of the batch is as it was before. It may raise `NeedsTokens`, having changed nothing:
    it is then asked again once the host has the tokens."""

    LATE_DRAFTS = "late_drafts"
    """Drafts more than `num_speculative_tokens` nodes where `max_nodes` says so. On a device it may be asked while a step runs,
    for a draft that begins with what that step may emit. Others are asked for no more than they were configured for."""

    TREE = "tree"
    """May return drafts with `parents`, of at most `max_nodes` nodes over all branches. For a sampler:
    verifies such drafts. Core refuses to combine a proposer that drafts trees with a sampler without it."""

    DRAFT_PROBS = "draft_probs"
    """Returns `node_probs`: the exact distribution each node was drawn from. A wrong distribution makes the
    output wrong."""


NEEDED_CAPABILITIES = frozenset(
    {
        Capability.HIDDEN_STATES,
        Capability.AUX_HIDDEN_STATES,
        Capability.OWN_KV,
        Capability.TARGET_TOP_K,
        Capability.TARGET_CACHE,
    }
)
"""The capabilities that need something of the target; a proposer without them needs token ids only, and runs in any engine."""


def are_capabilities(value: object) -> bool:
    """Return whether a plugin's `capabilities` is a frozenset of `Capability`."""
    return isinstance(value, frozenset) and all(isinstance(each, Capability) for each in value)
