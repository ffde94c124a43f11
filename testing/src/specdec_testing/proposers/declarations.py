"""The declared capabilities match the behaviour."""

from __future__ import annotations

import math

from specdec.interfaces import Capability
from specdec_testing.proposers.suite import ProposerSuite
from specdec_testing.support.borrowed import NotDeclared, borrowed
from specdec_testing.support.call_sequence import call_sequence, play
from specdec_testing.support.conformance import once_per_suite
from specdec_testing.support.feed import Feed
from specdec_testing.support.rows import Row
from specdec_testing.support.verdicts import broken, described, not_applicable


class DeclarationTests(ProposerSuite):
    """One test per capability."""

    def test_capabilities_fit_together(self) -> None:
        """A configuration declares no more capabilities than its class, and no contradictory ones.

        To fix: set `self.capabilities` in `__init__` to those of this configuration, a subset of the class attribute.
        """
        given = self._capabilities
        if beyond := given - type(self._made).capabilities:
            broken(f"this configuration declares {_listed(beyond)}, the class does not")
        layers = self._feed().proposer.aux_layer_ids
        if (Capability.AUX_HIDDEN_STATES in given) != bool(layers):
            broken(
                f"aux_layer_ids is {layers}, AUX_HIDDEN_STATES {'is' if not layers else 'is not'} declared"
            )
        num_layers = self._target.handle.info.num_layers
        if outside := [layer for layer in layers if not 0 <= layer <= num_layers]:
            broken(f"aux_layer_ids has {outside[0]}, the target's ids are 0 to {num_layers}")

    def test_only_declared_parts_of_the_target_are_used(self) -> None:
        """Without any of `NEEDED_CAPABILITIES` no weight of the target is used; runners need `OWN_KV` or `TARGET_CACHE`.

        To fix: declare HIDDEN_STATES, AUX_HIDDEN_STATES, OWN_KV or TARGET_CACHE, whichever you need beside the parts of
        `TargetHandle`.
        """
        handle = borrowed(self._target.handle, self._capabilities)
        try:
            proposer = self._checked.make(self._target, handle)
        except NotDeclared as error:
            broken(f"in load: {error}")
        except Exception as error:
            broken(f"load does not work without what is not declared: {described(error)}")
        feed = Feed(proposer, self._target)
        name = self._add(feed, 0)
        for ask in call_sequence(self._k):
            feed.call({name: ask})

    def test_it_drafts(self) -> None:
        """Something is drafted on some of the kit's texts; without drafts nothing can be checked.

        To fix: set `prompts` to a few texts on which your method drafts. Requests with the same texts have been finished
        before, so a method may learn there.
        """
        if not any(row.tokens for row in self._observed):
            broken(f"nothing was drafted in {len(self._observed)} calls that wanted a draft")

    def test_trees_are_declared(self) -> None:
        """Drafts have `parents` if and only if `TREE` is declared.

        To fix: declare TREE if a draft may have parents; a configuration without trees removes it from `self.capabilities`.
        """
        drafted = [row for row in self._observed if row.tokens]
        trees = [row for row in drafted if row.is_tree]
        if trees and Capability.TREE not in self._capabilities:
            broken(f"a draft has parents and TREE is not declared: {trees[0]}")
        if Capability.TREE not in self._capabilities:
            not_applicable("TREE is not declared, and no draft has parents")
        if drafted and not trees and self._k > 1:
            broken(f"TREE is declared and none of {len(drafted)} drafts has parents")

    def test_q_is_declared(self) -> None:
        """Drafts have `node_probs` if and only if `DRAFT_PROBS` is declared.

        To fix: declare DRAFT_PROBS if drafts carry q, and return q for every row of a sampled request.
        """
        drafted = [row for row in self._observed if row.tokens]
        given = [row for row in drafted if row.probs is not None]
        if given and Capability.DRAFT_PROBS not in self._capabilities:
            broken("a draft has node_probs and DRAFT_PROBS is not declared")
        if Capability.DRAFT_PROBS not in self._capabilities:
            not_applicable("DRAFT_PROBS is not declared for this configuration, and no draft has q")
        if drafted and not given:
            broken(f"DRAFT_PROBS is declared and none of {len(drafted)} drafts has node_probs")

    def test_confidence_is_a_probability(self) -> None:
        """Values of `confidence` lie between 0 and 1.

        To fix: return an estimated probability per node, not a logit or a score.
        """
        given = [row.confidence for row in self._observed if row.tokens and row.confidence is not None]
        if not given:
            not_applicable("no draft has confidence")
        for row in given:
            for value in row:
                if math.isnan(value) or not 0.0 <= value <= 1.0:
                    broken(f"a node's confidence is {value}, which is not a probability")

    @property
    @once_per_suite
    def _observed(self) -> list[Row]:
        """The drafts for every text, from all calls that wanted a draft."""
        feed = self._feed()
        names = [self._add(feed, index) for index in range(len(self._texts))]
        drafted = play(feed, dict.fromkeys(names, call_sequence(self._k)))
        wanted = [turn for turn, ask in enumerate(call_sequence(self._k)) if ask.cap]
        return [row for name in names for turn in wanted if (row := drafted[name][turn]) is not None]


def _listed(capabilities: frozenset[Capability] | set[Capability]) -> str:
    return ", ".join(sorted(capability.name for capability in capabilities))
