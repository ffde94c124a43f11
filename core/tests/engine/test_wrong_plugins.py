"""Plugins that break their contract are named, with what is wrong."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from speccheck.engines import engine_of, greedy, make_llm, scripted, tokens_of

from specdec import ConfigError, PluginError
from specdec.interfaces import Verdict

WRONG = {
    "nothing": (lambda verdict: None, "returned NoneType, not a Verdict"),
    "an id above the vocabulary": (
        lambda verdict: Verdict(verdict.accepted_nodes, [[10**6] * len(row) for row in verdict.token_ids]),
        "returned token id 1000000, outside the vocabulary of",
    ),
    "a negative id": (
        lambda verdict: Verdict(verdict.accepted_nodes, [[-1] * len(row) for row in verdict.token_ids]),
        "returned token id -1, outside the vocabulary of",
    ),
    "no token": (
        lambda verdict: Verdict([[] for _ in verdict.token_ids], [[] for _ in verdict.token_ids]),
        "returned 0 token ids with 0 accepted nodes in row 0: give the accepted tokens and one more",
    ),
    "too few rows": (
        lambda verdict: Verdict(verdict.accepted_nodes[:-1], verdict.token_ids[:-1]),
        r"returned \d rows of accepted_nodes and \d of token_ids for a batch of \d rows",
    ),
    "ids that are floats": (
        lambda verdict: Verdict(
            verdict.accepted_nodes, [[float(t) for t in row] for row in verdict.token_ids]
        ),
        r"returned a Verdict that cannot be read \(TypeError: .*: give accepted_nodes and token_ids as rows of whole",
    ),
    "an array of floats": (
        lambda verdict: Verdict(verdict.accepted_nodes, torch.zeros(len(verdict.token_ids), 1)),
        "returned a Verdict that cannot be read",
    ),
    "nodes in one row": (
        lambda verdict: Verdict([0] * len(verdict.token_ids), verdict.token_ids),
        "returned a Verdict that cannot be read",
    ),
    "no rows": (lambda verdict: Verdict(None, None), "returned a Verdict that cannot be read"),
    "text": (lambda verdict: Verdict("ab", "cd"), "returned a Verdict that cannot be read"),
    "a number for is_valid": (
        lambda verdict: Verdict(verdict.accepted_nodes, verdict.token_ids, 5),
        "returned a Verdict that cannot be read",
    ),
    "top_k that is no pair": (
        lambda verdict: replace(verdict, top_k=torch.ones(1, 2)),
        "returned a top_k that is not",
    ),
    "top_k of other rows": (
        lambda verdict: replace(verdict, top_k=(torch.ones(1, 2).long(), torch.ones(1, 2))),
        r"returned top_k of shapes \(1, 2\) and \(1, 2\): give \[\d+, num_top_k\] of both",
    ),
    "paths of floats": (
        lambda verdict: replace(verdict, paths=torch.ones(1, 2)),
        "returned paths that are no tensor",
    ),
    "paths of other rows": (
        lambda verdict: replace(verdict, paths=torch.zeros(77, 2).long()),
        r"returned paths of shape \(77, 2\): give \[\d+, N\]",
    ),
    "nodes that nobody drafted": (
        lambda verdict: Verdict([[40] for _ in verdict.token_ids], [[1, 2] for _ in verdict.token_ids]),
        r"returned accepted nodes \[40\] in row 0, whose draft has \d nodes",
    ),
    "nodes that are no path": (
        lambda verdict: Verdict([path[::-1] for path in verdict.accepted_nodes], verdict.token_ids),
        r"returned accepted nodes \[[1-9].*\] in row \d: the parent of node \d is \d, not -1",
    ),
    "another token than the node's": (
        lambda verdict: Verdict(
            verdict.accepted_nodes,
            [
                [row[0] + bool(path), *row[1:]]
                for path, row in zip(verdict.accepted_nodes, verdict.token_ids, strict=True)
            ],
        ),
        r"returned token id \d+ for node 0 of row \d, which is \d+",
    ),
}

PROPOSER = """
from specdec import Draft, Proposer


class Mine(Proposer):
    name = "mine"

    def __init__(self, config, target):
        super().__init__(config, target)
        {init}

    def load(self, target):
        {load}

    def propose(self, batch):
        {propose}
        return Draft.empty(batch.batch_size)
"""


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_verdict_names_the_sampler(subject, kind) -> None:
    llm = make_llm(subject.model, scripted(k=3, texts=subject.texts))
    engine, (change, message) = engine_of(llm), WRONG[kind]
    sampler = engine._sampler
    verify = sampler.verify
    sampler.verify = lambda *arguments: change(verify(*arguments))
    with pytest.raises(PluginError, match=f"sampler 'strict': verify {message}"):
        llm.generate(subject.prompts, greedy(8), use_tqdm=False)


def proposer(tmp_path: Path, **parts: str) -> dict[str, object]:
    file = tmp_path / "mine.py"
    file.write_text(PROPOSER.format(**{"init": "pass", "load": "pass", "propose": "pass"} | parts))
    return {"method": f"{file}:Mine", "num_speculative_tokens": 2}


@pytest.mark.parametrize(
    ("part", "line", "message"),
    [
        ("init", "open('no weights')", r"__init__ raised FileNotFoundError: .*no weights.* at .*mine\.py:10"),
        ("load", "[][1]", r"load raised IndexError: .* at .*mine\.py:13"),
        ("init", "raise SystemExit(3)", r"__init__ raised SystemExit: 3 at .*mine\.py:10"),
        ("load", "raise GeneratorExit", r"load raised GeneratorExit at .*mine\.py:13"),
        (
            "load",
            "raise BaseExceptionGroup('many', [SystemExit()])",
            r"load raised BaseExceptionGroup: many \(1 sub",
        ),
        (
            "load",
            "raise type('Mute', (Exception,), {'__str__': lambda s: exit(1)})",
            r"load raised Mute \(it cannot be",
        ),
        ("init", "self.capabilities = {'tree'}", "capabilities is {'tree'}: give a frozenset"),
    ],
)
def test_what_fails_at_load_names_the_proposer(subject, tmp_path, part, line, message) -> None:
    with pytest.raises((PluginError, ValueError), match=f"proposer 'mine': {message}"):
        make_llm(subject.model, proposer(tmp_path, **{part: line}))


@pytest.mark.parametrize(
    ("has", "ids", "message"),
    [
        ("AUX_HIDDEN_STATES", "()", r"= \(\): give the numbers of the layers whose inputs it reads, 0 to \d"),
        ("AUX_HIDDEN_STATES", "(1.0,)", r"= \(1\.0,\): give the numbers of the layers"),
        ("AUX_HIDDEN_STATES", "3", "= 3: give the numbers of the layers"),
        ("AUX_HIDDEN_STATES", "(1, 99)", r"= \(1, 99\), and the target's layers are 0 to \d"),
        ("HIDDEN_STATES", "(1,)", r"= \(1,\) without Capability\.AUX_HIDDEN_STATES: declare it"),
    ],
)
def test_layers_to_read_are_given_with_the_capability(subject, tmp_path, has, ids, message) -> None:
    given = proposer(tmp_path, load=f"self.aux_layer_ids = {ids}")
    file = tmp_path / "mine.py"
    own = f"    capabilities = frozenset({{specdec.Capability.{has}}})"
    file.write_text("import specdec\n" + file.read_text().replace('name = "mine"', f'name = "mine"\n{own}'))
    with pytest.raises(ConfigError, match=f"proposer 'mine' has aux_layer_ids {message}"):
        make_llm(subject.model, given)


def test_a_constructor_with_other_parameters_shows_those_it_must_have(subject, tmp_path) -> None:
    given = proposer(tmp_path)
    file = tmp_path / "mine.py"
    file.write_text(file.read_text().replace("(self, config, target)", "(self, k, model, *, path)"))
    with pytest.raises(
        PluginError,
        match=re.escape(
            "class Mine: __init__ takes (k, model, *, path): write def __init__(self, config: ProposerConfig, "
            "target: TargetInfo) -> None"
        ),
    ):
        make_llm(subject.model, given)


class Liar(int):
    """Says that it is in every range."""

    def __lt__(self, other: object) -> bool:
        return True

    __le__ = __ge__ = __gt__ = __lt__


def test_ids_of_a_verdict_are_what_they_are_and_not_what_they_say(subject) -> None:
    llm = make_llm(subject.model, scripted(k=3, texts=subject.texts))
    sampler = engine_of(llm)._sampler
    sampler.verify = lambda scores, batch: Verdict(
        [[]] * len(batch.seeds), [[Liar(10**9)]] * len(batch.seeds)
    )
    with pytest.raises(PluginError, match="sampler 'strict': verify returned token id 1000000000, outside"):
        llm.generate(subject.prompts, greedy(8), use_tqdm=False)


@pytest.mark.parametrize(
    "listed",
    [{0: []}, {0: [(0.0, 1, [3], [])]}, {0: [("x", 1, [], [])]}, {7: [(0.0, 1, [], [])]}, {0: 5}, "no"],
)
def test_listed_log_probabilities_that_cannot_be_read_are_the_samplers_fault(subject, listed) -> None:
    llm = make_llm(subject.model)
    engine_of(llm)._sampler.verify = lambda scores, batch: Verdict([[]], [[3]], None, listed)
    with pytest.raises(PluginError, match="sampler 'strict': verify returned listed log probabilities that"):
        llm.generate(subject.prompts[:1], greedy(2, logprobs=1), use_tqdm=False)


def test_a_sampler_that_ends_the_process_at_load_does_not(subject, monkeypatch) -> None:
    def verify(self, scores, batch) -> Verdict:
        raise SystemExit(3)

    monkeypatch.setattr("specdec.samplers.strict.StrictSampler.verify", verify)
    with pytest.raises(PluginError, match="sampler 'strict' cannot verify a draft of 0 nodes: SystemExit: 3"):
        make_llm(subject.model)


@pytest.mark.parametrize(
    "place",
    [
        "import torch; torch.set_default_device('meta')",
        "import torch; torch.set_default_dtype(torch.float64)",
    ],
)
def test_what_a_module_changes_when_it_is_imported_is_put_back(subject, tmp_path, place, caplog) -> None:
    config = proposer(tmp_path)
    file = tmp_path / "mine.py"
    file.write_text(f"{place}\n{file.read_text()}")
    with caplog.at_level(logging.WARNING, logger="specdec"):
        llm = make_llm(subject.model, config)
    assert (torch.ones(1).device.type, torch.get_default_dtype()) == ("cpu", torch.float32)
    assert "the plugin changed settings of the process when it was imported: default d" in caplog.text
    assert tokens_of(llm, subject.prompts[:1], greedy(8)) == [subject.expected[0][:8]]


@pytest.mark.parametrize("value", ["frozenset({'hidden_states'})", "['tree']", "3"])
def test_a_class_whose_capabilities_are_none_is_refused(subject, tmp_path, value) -> None:
    config = proposer(tmp_path)
    file = tmp_path / "mine.py"
    file.write_text(file.read_text().replace('name = "mine"', f'name = "mine"\n    capabilities = {value}'))
    with pytest.raises(PluginError, match=r"class Mine: capabilities is .*: give a frozenset"):
        make_llm(subject.model, config)


def test_the_log_says_where_a_proposer_raised(subject, tmp_path, caplog) -> None:
    llm = make_llm(subject.model, proposer(tmp_path, propose="{}[42]"))
    with caplog.at_level(logging.WARNING, logger="specdec"):
        assert tokens_of(llm, subject.prompts[:1], greedy(8)) == [subject.expected[0][:8]]
    [message] = [record.getMessage() for record in caplog.records if "raised" in record.getMessage()]
    assert "'mine' raised (KeyError: 42 at " in message
    assert "mine.py:16;" in message
    assert "'on_proposer_error'" in message
