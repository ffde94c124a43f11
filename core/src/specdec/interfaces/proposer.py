"""The proposer: guesses the next tokens of every running request."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

from specdec.config_model import ConfigModel
from specdec.interfaces.batch import ProposeBatch, TokenIds
from specdec.interfaces.capability import Capability
from specdec.interfaces.draft import Draft
from specdec.interfaces.finish import FinishReason
from specdec.interfaces.left_out import LeftOut
from specdec.interfaces.target import TargetHandle, TargetInfo
from specdec.target_facts import TargetFacts

SPECDEC_API = 1
"""Version of the interfaces in `specdec.interfaces`; a plugin built for another version is refused."""


class RequestArgs(ConfigModel):
    """Base class of what a request may pass to a proposer, `args` in `SamplingParams.speculative`; itself it has no keys."""


class ProposerConfig(ConfigModel):
    """Base class of a proposer's configuration; the common keys of `speculative_config` arrive resolved.

    A plugin subclasses it and adds its keys as fields with types, bounds and descriptions. Core refuses
    unknown keys and names the nearest valid one.
    """

    num_speculative_tokens: int
    """Maximum number of nodes drafted per request and step (k)."""
    model: str | None = None
    """Path or hub id of the draft checkpoint, for methods that have one."""
    revision: str | None = None
    """Revision of `model` on a hub."""
    quantization: str | None = None
    """Quantisation of the draft weights. Core refuses it unless the plugin's class declares it again."""
    max_model_len: int | None = None
    """Maximum context length of the draft; None means the smaller of draft and target."""
    parallel_drafting: bool = False
    """Draft all tokens in one pass with mask tokens. Core refuses it unless the plugin's class declares it again."""
    draft_tensor_parallel_size: int = 1
    """Number of ranks that the draft is split over: 1 or the target's."""
    draft_sample_method: str = "greedy"
    """`greedy`, `probabilistic` (keep q) or `coupled` (draft with the noise of `strict`)."""
    on_proposer_error: str = "fallback"
    """What core does with the proposer's errors, and a proposer that calls others with theirs."""

    @classmethod
    def complete(cls, keys: Mapping[str, Any], resolve: Resolve) -> dict[str, Any]:
        """Return the plugin's own keys as passed to the constructor; for plugins that combine other methods.

        Args:
            keys: the plugin's own keys, as given.
            resolve: takes a `speculative_config` that is nested among these keys and returns the proposer's class and
                configuration, checked against the same target and sampler; it raises `ConfigError` or `PluginError`.

        Returns:
            the keys, including common ones for which the plugin has a default that depends on them, such as
            `num_speculative_tokens`.

        Raises:
            ConfigError: if a key is wrong.
        """
        return dict(keys)

    def check_fit(self, target: TargetFacts | None) -> None:
        """Check, before weights are loaded, that the draft fits; called once the common keys are resolved.

        Args:
            target: what is known of the target; None if nothing is.

        Raises:
            ConfigError: naming the key, both values and the remedy.
        """

    def choices(self, proposer: type[Proposer]) -> dict[str, type[RequestArgs]]:
        """Return the methods that a request may choose, with the classes of their `args`; several where others are combined."""
        return {proposer.name: proposer.Args}


class Proposer(ABC):
    """Guesses the next tokens. It may be wrong or fail without changing the output distribution.

    One with `Capability.DRAFT_PROBS` must report the q that its tokens were drawn from: samplers that use q rely on it.

    Life cycle: `__init__` (cheap), `load` (weights and caches), then `propose` once per step for all running requests,
    and `finish` when requests end. All calls come from one thread.
    """

    name: ClassVar[str]
    """The method name users type; equal to the entry-point name."""
    aliases: ClassVar[tuple[str, ...]] = ()
    """Other accepted names, each with an entry point of its own."""
    api_version: ClassVar[int] = 1
    """The `SPECDEC_API` this class was written for. The default is 1, the first version, whatever is
    installed: classes for later versions set it."""
    Config: ClassVar[type[ProposerConfig]] = ProposerConfig
    """The class's own configuration keys."""
    Args: ClassVar[type[RequestArgs]] = RequestArgs
    """What requests may pass; a request that does has an instance as `speculative["args"]` of its `sampling_params`."""
    implementation: ClassVar[str] = ""
    """Which of several implementations runs here, for `specdec doctor`; empty if there is one alone."""
    capabilities: frozenset[Capability] = frozenset()
    """Class attribute: everything this method can do. Instance attribute: what this configuration does."""
    aux_layer_ids: tuple[int, ...] = ()
    """With `AUX_HIDDEN_STATES`: layer ids; id k means the input of layer k, and the number of layers means the
    last one's output, before the final norm."""
    num_top_k: int = 0
    """With `TARGET_TOP_K`: how many ids to list at each node, 1 to 1024."""
    is_timed: bool = False
    """Whether drafts depend on measured durations, so that the same calls may give other drafts."""
    num_contained: int = 0
    """Failures of proposers that this one calls, contained there; core counts them as its own."""
    left_out: Mapping[str, LeftOut] = MappingProxyType({})
    """By request id, the requests that it cannot draft for, such as those that its cache has no room for; read after each
    `propose`, and told in the metrics. One that can return is delivered again from position 0, its hidden states computed
    again by the target, when that pays: few tokens beside those still to come, and one request at a time."""

    def __init__(self, config: ProposerConfig, target: TargetInfo) -> None:
        """Store the configuration; must be cheap and load no weights.

        Raises:
            ConfigError: if the configuration does not fit the target.
        """
        self.config = config
        self.target_info = target

    @classmethod
    def fitting(cls, config: ProposerConfig, target: TargetInfo) -> Proposer:
        """Make the proposer for a target; one that calls others may return another, which then drafts in its place.

        Raises:
            ConfigError: if the configuration does not fit the target.
        """
        return cls(config, target)

    def load(self, target: TargetHandle) -> None:  # noqa: B027  a proposer without weights has nothing to load
        """Load weights and make caches; called once after the target is loaded."""

    def weights_changed(self, target: TargetHandle | None) -> None:  # noqa: B027  most do not depend on them
        """Follow the target, whose weights have changed (`LLM.update_weights`) or are back (`LLM.wake_up`); no request runs.

        What was made of the old weights or by passes over them, such as copies and cached rows, has to be made again. What
        was learnt of texts stays useful. The default does nothing; modules of the target, such as `lm_head`, follow by
        themselves.

        Args:
            target: the target as it is now; None if its weights are about to change or it sleeps (`LLM.sleep`): weights and
                caches are to be let go until the next call.

        Raises:
            ModelError: likewise `ConfigError`, as `load`; the new weights stay, and the proposer is asked on: it may raise.
        """

    @abstractmethod
    def propose(self, batch: ProposeBatch) -> Draft:
        """Process the new tokens, and draft up to `max_nodes[i]` nodes for every row i where that is above 0.

        After an exception of any kind but the user's Ctrl-C there are no drafts in this step: core counts it, calls
        `finish(..., FinishReason.ERROR)` and delivers everything again from position 0. Hidden states are not
        kept for that: for a proposer that reads them, the target computes them again when that pays; until then the
        requests have rows with `max_nodes` 0.

        Returns:
            a draft with one row per request of the batch.
        """

    def resume(self, request_id: str, token_ids: TokenIds) -> int:
        """Return how many of a request's first tokens the proposer already holds; delivery begins after them.

        Called when a request with a prefix cache hit (at most all tokens but the last) is placed: when it is
        new, before its first row; and, for proposers that read hidden states, when it returns after a
        preemption, in which case the proposer may still hold its state. How tokens are held is up to the
        proposer, for example as rows of its cache that an earlier request with the same prefix has left
        (`specdec_runtime.drafting.RequestSlots` keeps such rows).

        Args:
            request_id: the request, as later in `ProposeBatch.request_ids`.
            token_ids: `[n]` int32: the cached tokens, n > 0; read-only and valid only during the call.

        Returns:
            a number h from 0 to n. Tokens from position h on are delivered, with the hidden states that
            predicted them, and h is the row's first `starts`. State kept for `request_id` must cover exactly
            these h tokens. 0, the default, delivers everything. If a proposer needs hidden states, the target
            recomputes the tokens that it does not hold; one that can do without them (it keeps only the last
            state, or will not draft for this request) returns n.
        """
        return 0

    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:  # noqa: B027  optional
        """Drop all state of these requests. Do not learn from aborted requests."""


Resolve = Callable[[Mapping[str, Any]], tuple[type[Proposer], ProposerConfig]]
"""Resolves a nested `speculative_config`; see `ProposerConfig.complete`."""
