"""Properties of verdicts that hold for any draw."""

from __future__ import annotations

import torch

from specdec.interfaces import Capability, Verdict
from specdec_testing.samplers.suite import GREEDY, SAMPLED, SamplerSuite
from specdec_testing.support.verdicts import broken
from specdec_testing.support.world import VOCAB_SIZE, Trial, World, random_logits
from specdec_testing.support.world_drafts import KINDS

_BATCH = 36
_USED = frozenset({Capability.TREE, Capability.DRAFT_PROBS})


class VerdictTests(SamplerSuite):
    """Paths, temperature 0, forbidden ids, and independence of a verdict from other requests."""

    def test_the_class_says_what_it_does(self) -> None:
        """`is_lossless` and `is_greedy_exact` are set, and capabilities are ones that a sampler can use.

        To fix: set both to True or False, and `capabilities` to a subset of TREE and DRAFT_PROBS; a lossless sampler is
        exact at temperature 0.
        """
        for name in ("is_lossless", "is_greedy_exact"):
            if not isinstance(value := getattr(self._class, name), bool):
                broken(f"{name} is {value!r}, not True or False")
        if beyond := self._class.capabilities - _USED:
            broken(f"capabilities has {', '.join(sorted(c.name for c in beyond))}, which no sampler uses")
        if self._class.is_lossless and not self._class.is_greedy_exact:
            broken("is_lossless is True and is_greedy_exact False, which excludes it")

    def test_accepted_nodes_are_a_path_and_one_token_follows(self) -> None:
        """Accepted nodes form a path from the last committed token; the emitted tokens are theirs and one more.

        To fix: return for each request the accepted path as indices into `batch.nodes[i]`, and `num_accepted + 1` tokens.
        """
        for kind in self._kinds():
            for params in (SAMPLED, GREEDY):
                trial = self._trial(kind, [params] * _BATCH)
                _check_paths(trial, self._verify(trial), kind.name)

    def test_a_step_in_which_nobody_samples(self) -> None:
        """An empty batch, as in a step with prefill only, gives a verdict without rows.

        To fix: support `batch.num_nodes == []`; a tensor made from an empty list has a float dtype unless one is given.
        """
        self._verify(self._trial(KINDS["no draft"], []))

    def test_temperature_zero_is_the_argmax_path(self) -> None:
        """At temperature 0 the argmax is emitted along the draft and once more after it; ties go to the lowest id.

        To fix: take `argmax` of the logits, which prefers the lowest id, for rows with `sampling_params[i].is_greedy`, also
        in a batch with sampled ones, and continue with the child of that id; of equal children, take the one with the longest
        path.
        """
        self._require_exact()
        for seed in range(6):
            world = World(random_logits(seed))
            for kind in self._kinds():
                for params in ([GREEDY] * _BATCH, [GREEDY, SAMPLED] * (_BATCH // 2)):
                    trial = self._trial(kind, params, world=world, seed=seed)
                    verdict = self._verify(trial)
                    for index, one in enumerate(params):
                        if one.is_greedy:
                            _check_argmax(trial, verdict, index, kind.name)

    def test_forbidden_ids_are_never_emitted(self) -> None:
        """An id whose p-logit is -inf is not emitted, drafted or not, at any temperature.

        To fix: reject drafted ids with p = 0, and draw the last token from p, or from a residual that is 0 where p is 0.
        """
        self._require_exact()
        logits = random_logits(3)
        generator = torch.Generator().manual_seed(9)
        forbidden = torch.rand(logits.shape, generator=generator) < 0.6
        forbidden.scatter_(1, torch.randint(0, VOCAB_SIZE, (len(logits), 1), generator=generator), False)
        world = World(logits.masked_fill(forbidden, -torch.inf))
        for kind in self._kinds():
            for seed, params in enumerate([SAMPLED] * 8 + [GREEDY]):
                trial = self._trial(kind, [params] * _BATCH, world=world, seed=seed)
                verdict = self._verify(trial)
                _check_paths(trial, verdict, kind.name)
                for index, (nodes, tokens) in enumerate(
                    zip(verdict.accepted_nodes, verdict.token_ids, strict=True)
                ):
                    for node, token in zip((-1, *nodes), tokens, strict=True):
                        if trial.scores.logits[trial.batch.row_of(index, node), token] == -torch.inf:
                            broken(f"{kind.name}: id {token} was emitted, its p-logit is -inf")

    def test_the_same_seed_gives_the_same_verdict(self) -> None:
        """A verdict is a function of logits, drafts and seeds.

        To fix: draw with `specdec.noise`, keyed by seed, sample index, tokens committed at the start of the step, and node.
        """
        for kind in self._kinds():
            verdicts = []
            for number in (1, 2):
                torch.manual_seed(number)
                verdicts.append(self._verify(self._trial(kind, [SAMPLED] * _BATCH)))
            if _plain(verdicts[0]) != _plain(verdicts[1]):
                broken(f"{kind.name}: the same batch got two verdicts")

    def test_requests_do_not_depend_on_each_other(self) -> None:
        """A request's verdict is the same alone and in any batch.

        To fix: key noise by the request, never by its row, and do not read other requests' rows.
        """
        for kind in self._kinds():
            trial = self._trial(kind, [SAMPLED, GREEDY, SAMPLED] * 6)
            together = _plain(self._verify(trial))
            for index in range(18):
                alone = _plain(self._verify(trial.alone(index)))[0]
                if alone != together[index]:
                    broken(f"{kind.name}: nodes and tokens {together[index]} in a batch, {alone} alone")

    def test_inputs_are_not_written_to(self) -> None:
        """Logits and drafts are read-only: the engine computes log probabilities from them afterwards.

        To fix: use no in-place operation on `scores.logits`, `scores.raw_logits` or the tensors of `batch.drawn`.
        """
        for kind in self._kinds():
            trial = self._trial(kind, [SAMPLED, GREEDY] * 8)
            drawn = trial.batch.drawn
            tensors = {"Scores.logits": trial.scores.logits}
            tensors |= {
                f"DrawnNodes.{n}": t
                for n in ("token_ids", "node_probs", "has_probs")
                if (t := getattr(drawn, n, None)) is not None
            }
            before = {name: tensor.clone() for name, tensor in tensors.items()}
            self._verify(trial)
            for name, tensor in tensors.items():
                if not torch.equal(tensor, before[name]):
                    broken(f"{kind.name}: verify wrote into {name}")


def _plain(verdict: Verdict) -> list[tuple[list[int], list[int]]]:
    return [
        ([int(n) for n in nodes], [int(t) for t in tokens])
        for nodes, tokens in zip(verdict.accepted_nodes, verdict.token_ids, strict=True)
    ]


def _check_paths(trial: Trial, verdict: Verdict, kind: str) -> None:
    batch = trial.batch
    for index, row in enumerate(batch.nodes):
        nodes, tokens = list(verdict.accepted_nodes[index]), list(verdict.token_ids[index])
        parents = range(-1, len(row)) if batch.parents is None else batch.parents[index]
        if len(tokens) != len(nodes) + 1:
            broken(f"{kind}: {len(nodes)} nodes were accepted and {len(tokens)} tokens emitted")
        for at, node in enumerate(nodes):
            before = nodes[at - 1] if at else -1
            if not 0 <= node < len(row) or parents[node] != before:
                broken(
                    f"{kind}: accepted nodes {nodes} are no path in a draft with parents {list(parents)[: len(row)]}"
                )
            if row[node] != tokens[at]:
                broken(f"{kind}: token {tokens[at]} was emitted for node {node}, which is {row[node]}")
        if not all(0 <= token < VOCAB_SIZE for token in tokens):
            broken(f"{kind}: {tokens} was emitted from a vocabulary of {VOCAB_SIZE}")


def _check_argmax(trial: Trial, verdict: Verdict, index: int, kind: str) -> None:
    """Check one row at temperature 0; the path may continue through any of equal siblings if it is a longest path."""
    batch = trial.batch
    row = batch.nodes[index]
    parents = range(-1, len(row)) if batch.parents is None else batch.parents[index]
    path = (-1, *verdict.accepted_nodes[index])
    for node, token in zip(path, verdict.token_ids[index], strict=True):
        logits = trial.scores.logits[trial.batch.row_of(index, node)]
        best = int(logits.argmax())
        if token != best:
            broken(
                f"{kind}: id {token} at temperature 0, its logit is {logits[token]:g} and that of {best} {logits[best]:g}"
            )
    depths = {-1: 0}
    for node, token in enumerate(row):
        parent = parents[node]
        if parent in depths and token == int(trial.scores.logits[trial.batch.row_of(index, parent)].argmax()):
            depths[node] = depths[parent] + 1
    if max(depths.values()) >= len(path):
        broken(f"{kind}: at temperature 0 the path stops though the next best id was drafted")
