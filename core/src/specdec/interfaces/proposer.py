"""The proposer: guesses the next tokens of every running request."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from pydantic import BaseModel, ConfigDict

from specdec.interfaces.batch import HostIds, ProposeBatch
from specdec.interfaces.capability import Capability
from specdec.interfaces.draft import Draft
from specdec.interfaces.finish import FinishReason
from specdec.interfaces.target import TargetHandle, TargetInfo

if TYPE_CHECKING:
    from specdec.config.resolve import ResolvedSpeculation

SPECDEC_API = 1
"""Version of the contracts in `specdec.interfaces`; a plugin built for another one is refused."""


class ResolveSpeculation(Protocol):
    """Resolves a `speculative_config` that is part of another."""

    def __call__(self, value: Mapping[str, Any]) -> ResolvedSpeculation:
        """Return what it means, checked against the same target, for the same sampler.

        Raises:
            ConfigError: naming the key that is wrong, its value and the remedy.
            PluginError: if the method it names is not installed or cannot be loaded.
        """


class ProposerConfig(BaseModel):
    """Base of every plugin's own configuration; the common keys of `speculative_config` arrive here resolved.

    A plugin subclasses it and adds its keys as fields with types, bounds and descriptions. Unknown keys are refused by
    core, which names the nearest valid one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    num_speculative_tokens: int
    """The most nodes drafted per request and step (k)."""
    model: str | None = None
    """Path or hub id of the draft checkpoint, for methods that have one."""
    revision: str | None = None
    """Revision of `model` on a hub."""
    quantization: str | None = None
    """Quantisation of the draft weights. Core refuses it unless the plugin's class declares it again."""
    max_model_len: int | None = None
    """The longest context the draft may use; None means the smaller of draft and target."""
    parallel_drafting: bool = False
    """Draft all tokens in one pass with mask tokens. Core refuses it unless the plugin's class declares it again."""
    draft_tensor_parallel_size: int = 1
    """Ranks the draft is spread over: 1 or the target's."""
    draft_sample_method: str = "greedy"
    """`greedy`, `probabilistic` (keep q) or `coupled` (draft with the noise of `strict`)."""

    @classmethod
    def complete(cls, keys: Mapping[str, Any], resolve: ResolveSpeculation) -> dict[str, Any]:
        """Return the plugin's own keys as the class is made with; for plugins made of other methods.

        Args:
            keys: the plugin's own keys, as given.
            resolve: what another method's configuration among them means.

        Returns:
            the keys, and `num_speculative_tokens` among them where the plugin has a default that depends on them.

        Raises:
            ConfigError: if a key is wrong.
        """
        return dict(keys)


class Proposer(ABC):
    """Guesses the next tokens; may be wrong, may fail, cannot change the output distribution.

    Life cycle: `__init__` (cheap), `load` (weights and caches), then `propose` once per step for all running requests,
    and `finish` when requests leave. All calls come from one thread.
    """

    name: ClassVar[str]
    """The method name users type; equal to the entry-point name."""
    aliases: ClassVar[tuple[str, ...]] = ()
    """Other accepted names, each with an entry point of its own."""
    api_version: ClassVar[int] = 1
    """The `SPECDEC_API` this class was written for. Left out it is 1, the first, whatever is installed: classes for later ones
    say so."""
    Config: ClassVar[type[ProposerConfig]] = ProposerConfig
    """The class's own configuration keys."""
    capabilities: frozenset[Capability] = frozenset({Capability.TOKENS_ONLY})
    """Class attribute: the most this method can do; instance attribute: what this configuration does."""
    aux_layer_ids: tuple[int, ...] = ()
    """With `AUX_HIDDEN_STATES`: layer ids, k meaning the input of layer k."""

    def __init__(self, config: ProposerConfig, target: TargetInfo) -> None:
        """Keep the configuration; must be cheap and load no weights.

        Raises:
            ConfigError: if the configuration does not fit the target.
        """
        self.config = config
        self.target_info = target

    def load(self, target: TargetHandle) -> None:  # noqa: B027  a proposer without weights has nothing to load
        """Load weights and make caches; called once after the target is loaded."""

    @abstractmethod
    def propose(self, batch: ProposeBatch) -> Draft:
        """Take in what is new, and draft up to `max_nodes[i]` nodes for every row i where that is above 0.

        An exception costs this step's drafts only: it is counted, `finish(..., FinishReason.ERROR)` follows and
        everything is delivered again from position 0.

        Returns:
            a draft with as many rows as the batch has requests.
        """

    def resume(self, request_id: str, token_ids: HostIds) -> int:
        """Say how many of a request's first tokens are held already, before it has had a row: delivery begins behind them.

        Called when a request is placed whose first tokens, all but the last at most, lie in the prefix cache: when it is new,
        and, for proposers that read hidden states, when it comes back after it was preempted, where it may still be held.
        How something is held is the proposer's own affair: rows of its cache that an earlier request of the same beginning has
        left, for example (`specdec.runner.SlotPool` keeps such).

        Args:
            request_id: the request, as later in `ProposeBatch.request_ids`.
            token_ids: `[n]` int32, read-only and lent: the cached tokens, n > 0.

        Returns:
            a number h from 0 to n. Tokens from position h on are delivered, with the states that chose them, and h is the row's
            first `starts`; state kept for `request_id` must be of exactly these h tokens. 0, as here, has everything delivered
            from the start. A proposer that needs hidden states makes the target compute what it does not hold again, so one
            that can do without (it keeps only the last state, or will not draft for this request) returns n.
        """
        return 0

    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:  # noqa: B027  optional
        """Drop all state of these requests. Aborted requests must not teach anything."""
