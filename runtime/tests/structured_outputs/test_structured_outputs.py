"""Grammars: masks along drafts, drafts that are cut, texts that follow, errors that say what is wrong."""

from __future__ import annotations

import re
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from speccheck.engines import engine_of, letter_tokenizer, make_llm, proposer_of, scripted, tokens_of
from speccheck.grammars import CHARACTERS, state_of
from speccheck.models import prompts, tiny
from speccheck.proposers import Scripted
from transformers import PreTrainedTokenizerFast

from specdec import CheckedDraft, ConfigError, Draft, DraftSampling, ProposeBatch, SamplingParams, reference
from specdec.engine import Row, Step
from specdec.engine.sequence import Sequence
from specdec.interfaces import DrawnNodes
from specdec.logits.rules import RequestRules
from specdec.structured_outputs import StructuredOutputsParams
from specdec_runtime.structured_outputs import compiler
from specdec_runtime.structured_outputs.state import MatcherState, unpacked

WORDS = ["a", "b", "ab", "ba", "c", "abc", "<end>"]
END = WORDS.index("<end>")
BEGUN = state_of({"regex": "(ab|ba)*c?"}, WORDS)
PATTERN = re.compile("(ab|ba)*c?")


def state() -> MatcherState:
    return BEGUN.begin()


def can_continue(text: str) -> bool:
    """Whether a text begins a word of the language."""
    return any(PATTERN.fullmatch(text + rest) for rest in ("", "a", "b"))


def allowed_ids(tokens: list[int]) -> set[int] | None:
    """What may follow, by trying every id on the text; None behind a wrong or a complete text."""
    if any(token == END for token in tokens):
        return None
    text = "".join(WORDS[t] for t in tokens)
    if not can_continue(text):
        return None
    found = {i for i, word in enumerate(WORDS) if i != END and can_continue(text + word)}
    return found | ({END} if PATTERN.fullmatch(text) else set())


tokens = st.integers(0, len(WORDS) - 1)
drafts = st.lists(tokens, max_size=6).flatmap(
    lambda nodes: st.tuples(
        st.just(nodes), st.none() | st.tuples(*(st.integers(-1, j - 1) for j in range(len(nodes)))).map(list)
    )
)


@settings(max_examples=120, deadline=None)
@given(steps=st.lists(st.tuples(drafts, st.integers(0, 6)), min_size=1, max_size=4))
def test_masks_along_drafts(steps) -> None:
    """Masks, verdicts on nodes, and the grammar's state afterwards, against trying every id on the text."""
    grammar, committed = state(), []
    for (nodes, parents), choice in steps:
        paths: list[list[int]] = [[]]
        for node, token in enumerate(nodes):
            parent = node - 1 if parents is None else parents[node]
            paths.append([*paths[parent + 1], token])
        is_allowed = grammar.allowed_nodes(nodes, parents)
        grammar.mask(masked := torch.zeros(len(nodes) + 1, len(WORDS)), nodes, parents)
        for row, path in enumerate(paths):
            want = allowed_ids(committed + path)
            got = {i for i in range(len(WORDS)) if masked[row, i] == 0}
            assert got == (set(range(len(WORDS))) if want is None else want)
            after = unpacked(grammar.mask_after(path)[None], masked[:1])[0]
            assert {i for i in range(len(WORDS)) if after[i]} == (want or set())
            if row:
                before = allowed_ids(committed + path[:-1])
                assert is_allowed[row - 1] == (before is not None and path[-1] in before)
        here = sorted(allowed_ids(committed) or [])
        if not here:
            assert grammar.is_terminated
            break
        token = here[choice % len(here)]
        grammar.advance([token])
        committed.append(token)
        assert grammar.is_terminated == (token == END)


def sequence_with(grammar: MatcherState | None) -> Sequence:
    made = Sequence(
        "x", torch.tensor([0]).int().numpy(), SamplingParams(), seed=0, sample_index=0, max_num_tokens=9
    )
    made.rules = None if grammar is None else RequestRules([], grammar)
    return made


def test_a_text_against_the_grammar_leaves_it(caplog) -> None:
    grammar = state()
    grammar.advance([2, 2, END, 0])
    assert grammar.is_terminated
    other = state()
    other.advance([2, 0, 0, 4])  # ab, a, a: no word of the language begins like this
    assert "goes on without grammar" in caplog.text
    assert not other.is_terminated
    assert other.allowed_nodes([5, 5], None) == [True, True]
    other.mask(logits := torch.zeros(3, len(WORDS)), [5, 5], None)
    assert not logits.any()
    assert bool(unpacked(other.mask_after([0])[None], torch.zeros(1, len(WORDS))).all())


def test_ids_outside_the_vocabulary_are_not_allowed() -> None:
    assert state().allowed_nodes([-1, len(WORDS), 2], [-1, -1, -1]) == [False, False, True]


def constrained(draft: CheckedDraft, grammars: list[MatcherState | None]) -> tuple[tuple[int, ...], ...]:
    """Return what grammars leave of a draft, in a step."""
    rows = [Row(sequence_with(grammar), 0, 1, chunk=1, is_sampled=True) for grammar in grammars]
    step = Step(rows, sampled=rows)
    step.take(draft)
    step.constrain()
    assert all(row.parents is None or len(row.parents) == len(row.nodes) for row in rows)
    return tuple(tuple(row.nodes) for row in rows)


def test_drafts_are_cut_where_they_were_not_drawn() -> None:
    chain = [2, 3, 0, 0, 1]  # ab ba a | a b
    ids = Draft.from_lists([chain, chain, [4, 2], [END, 1]]).token_ids
    rows = CheckedDraft((tuple(chain), tuple(chain), (4, 2), (END, 1)))
    grammars = [state(), None, state(), state()]
    assert constrained(rows, grammars) == ((2, 3, 0), tuple(chain), (4,), (END,))
    tree = CheckedDraft(((0, 0, 2, 1, 4, 2),), ((-1, 0, -1, 0, 2, 4),))  # a, a>a!, ab, a>b, ab>c, c>ab!
    assert constrained(tree, [state()]) == ((0, 0, 2, 1, 4),)
    flags = torch.tensor([True, True, False, True])
    q = torch.full((4, 6, len(WORDS)), 1 / 7)
    drawn = CheckedDraft(rows.rows, drawn=DrawnNodes(ids, q, DraftSampling.IID, flags))
    kept = constrained(drawn, grammars)
    assert kept == (tuple(chain), tuple(chain), (4,), (END, 1)), (
        "whether a drawn node is there must not depend on it"
    )


class Asking(Scripted):
    """Asks what is allowed before it drafts."""

    seen: ClassVar[list[Any]] = []

    def draft(self, batch: ProposeBatch) -> Draft:
        for row in range(batch.batch_size):
            if batch.max_nodes[row]:
                self.seen.append((batch.allowed(row), batch.allowed(row, [5])))
        return super().draft(batch)


@pytest.fixture(scope="module")
def subject():
    return tiny("llama"), prompts([9, 30, 4], seed=2)


def ending_tokenizer() -> PreTrainedTokenizerFast:
    """The letter tokenizer, whose last id ends texts."""
    tokenizer = letter_tokenizer()
    tokenizer.eos_token = "kh"
    return tokenizer


GRAMMARS: dict[str, tuple[dict[str, Any], str]] = {
    "regex": ({"regex": "(aa|bc|ck){3,5}(dd)?"}, "(aa|bc|ck){3,5}(dd)?"),
    "choice": ({"choice": ["aabbcc", "aabbdd", "ccddee"]}, "aabbcc|aabbdd|ccddee"),
    "grammar": ({"grammar": 'root ::= "aa" item{2,4} "ee"\nitem ::= "bb" | "cc"'}, "aa(bb|cc){2,4}ee"),
    "structural_tag": (
        {
            "structural_tag": {
                "type": "structural_tag",
                "format": {
                    "type": "tag",
                    "begin": "aa",
                    "content": {"type": "regex", "pattern": "(bb|cc){2,4}"},
                    "end": "ee",
                },
            }
        },
        "aa(bb|cc){2,4}ee",
    ),
}


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("name", GRAMMARS)
@pytest.mark.sampled(2, slow=3)
def test_texts_follow_with_any_draft(subject, name, temperature) -> None:
    model, many = subject
    wanted, pattern = GRAMMARS[name]
    tokenizer = ending_tokenizer()
    params = [
        SamplingParams(temperature=temperature, seed=i, max_tokens=30, structured_outputs=wanted)
        for i in range(3)
    ]
    plain = make_llm(model, tokenizer=tokenizer)
    outputs = plain.generate(many, params)
    for output in outputs:
        assert output.outputs[0].finish_reason == "stop"
        assert re.fullmatch(pattern, output.outputs[0].text)
    expected = [output.outputs[0].token_ids for output in outputs]
    texts = [[*p, *e] for p, e in zip(many, expected, strict=True)]
    for proposer in (
        scripted(k=4, wrong=0.3, texts=texts), scripted(k=8, shape="tree", wrong=0.2, texts=texts),
        scripted(k=5, wrong=1.0), scripted("Asking", k=3),
    ):  # fmt: skip
        if proposer["method"].endswith("Asking"):
            proposer["method"] = f"{__name__}.Asking"
        llm = make_llm(model, proposer, tokenizer=tokenizer, max_num_seqs=2)
        assert tokens_of(llm, many, params) == expected
        if "texts" in proposer:
            assert engine_of(llm).metrics.num_accepted_tokens > 0
    assert isinstance(proposer_of(llm), Asking)
    assert all(mask is not None and mask.dtype == torch.int32 for seen in Asking.seen for mask in seen)


def test_a_grammar_that_ends_is_not_ignored(subject) -> None:
    model, many = subject
    tokenizer = ending_tokenizer()
    llm = make_llm(model, scripted(k=6, wrong=1.0), tokenizer=tokenizer)
    keys = {"structured_outputs": {"choice": ["aabb"]}, "max_tokens": 12, "temperature": 0.0}
    [endless] = llm.generate(many[:1], SamplingParams(ignore_eos=True, **keys))
    assert (endless.outputs[0].text, endless.outputs[0].finish_reason) == ("aabb", "stop")
    [too_long] = llm.generate(many[:1], SamplingParams(min_tokens=8, **keys))
    assert (too_long.outputs[0].text, too_long.outputs[0].finish_reason) == ("aabb", "error")
    assert "exclude each other" in str(too_long.outputs[0].stop_reason)


def test_a_pydantic_model_is_a_schema() -> None:
    class Point(BaseModel):
        x: int

    assert StructuredOutputsParams(json=Point).json_schema == Point.model_json_schema()
    assert SamplingParams(structured_outputs={"json": {"type": "object"}}).structured_outputs.kind == "json"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "exactly one of json, regex, choice, grammar, json_object, structural_tag .got none"),
        ({"regex": "a", "choice": ["b"]}, "got regex, choice"),
        ({"jsn": {}}, "jsn"),
        ({"choice": []}, "choice"),
        ({"regex": "a", "disable_any_whitespace": True}, "does nothing with regex: leave it out"),
        ({"choice": ["a"], "disable_any_whitespace": True}, "does nothing with choice"),
        ({"grammar": "root ::= 'a'", "disable_any_whitespace": True}, "does nothing with grammar"),
    ],
)
def test_wrong_constraints_are_refused(keys, message) -> None:
    with pytest.raises(ConfigError, match=message):
        StructuredOutputsParams(**keys)


@pytest.mark.parametrize(
    ("keys", "text", "is_allowed"),
    [
        ({"json_object": True}, "{}", True),
        ({"json_object": True}, '{"a": [1, {"b": null}], "c": "x"}', True),
        ({"json_object": True}, '{ "a" : [1,2]\n}', True),
        ({"json_object": True}, "[]", False),
        ({"json_object": True}, "[1]", False),
        ({"json_object": True}, '"a"', False),
        ({"json_object": True, "disable_any_whitespace": True}, '{"a": [1, {"b": null}], "c": "x"}', True),
        ({"json_object": True, "disable_any_whitespace": True}, '{"a":  1}', False),
        ({"json_object": True, "disable_any_whitespace": True}, '{"a": 1\n}', False),
        ({"json_object": True, "disable_any_whitespace": True}, "[]", False),
        ({"json": {"type": "object"}, "disable_any_whitespace": True}, '{ "a": 1}', False),
        ({"json": {"type": "object"}}, '{ "a": 1}', True),
        ({"json": {}}, "[1]", True),
    ],
)
def test_what_json_may_look_like(keys, text, is_allowed) -> None:
    grammar = state_of(keys)
    path = [*map(CHARACTERS.index, text), len(CHARACTERS) - 1]
    assert all(grammar.allowed_nodes(path, None)) == is_allowed


@pytest.mark.parametrize(
    "keys",
    [
        {"regex": "(a"},
        {"json": "{not json"},
        {"structural_tag": {"format": 1}},
        {"grammar": "root ::= ("},
        {"json": {"type": "wrong"}},
    ],
)
def test_what_cannot_be_compiled_is_refused_with_the_prompt(subject, keys) -> None:
    model, many = subject
    llm = make_llm(model, tokenizer=ending_tokenizer())
    with pytest.raises(
        ConfigError, match=f"structured_outputs '{next(iter(keys))}' cannot be compiled"
    ) as told:
        llm.generate(many[:1], SamplingParams(structured_outputs=keys))
    assert "%json" not in str(told.value), "how it is written for the library is of no use"
    assert not llm._built.engine.has_work


def test_a_target_without_an_end_is_refused(subject) -> None:
    model, many = subject
    llm = make_llm(model, tokenizer=letter_tokenizer())
    with pytest.raises(ConfigError, match="needs an end-of-text id"):
        llm.generate(many[:1], SamplingParams(structured_outputs={"regex": "aa"}))


def test_a_missing_package_is_named(subject, site) -> None:
    model, many = subject
    llm = make_llm(model, tokenizer=letter_tokenizer())
    site.install("specdec-runtime", {"parts": {}}, {}, version="0")  # found before the real one
    with pytest.raises(ConfigError, match="not installed: pip install specdec-runtime"):
        llm.generate(many[:1], SamplingParams(structured_outputs={"json_object": True}))


def test_a_draft_may_be_deeper_than_the_interpreters_stack() -> None:
    nodes = [2] * 3000  # ab ab ab ...
    assert state().allowed_nodes(nodes, None) == [True] * 3000
    assert state().allowed_nodes([*nodes, 4, 2], None) == [*[True] * 3001, False]


def test_the_end_waits_for_min_tokens_whatever_is_ignored(subject) -> None:
    model, many = subject
    llm = make_llm(model, scripted(k=4, wrong=1.0), tokenizer=ending_tokenizer())
    for ignore_eos in (False, True):
        params = [
            SamplingParams(
                temperature=1.0, seed=seed, max_tokens=30, min_tokens=20, ignore_eos=ignore_eos,
                structured_outputs={"regex": "[a-l]{2,60}"},
            )
            for seed in range(12)
        ]  # fmt: skip
        lengths = [len(o.outputs[0].token_ids) for o in llm.generate([many[0]] * 12, params)]
        assert min(lengths) > 20
        assert min(lengths) < 30, "some end by themselves"


def test_the_reference_loop_follows_grammars(subject) -> None:
    model, many = subject
    wanted = {"regex": "(aa|bc|ck){3,5}(dd){9}"}
    params = SamplingParams(temperature=0.9, seed=4, max_tokens=10, structured_outputs=wanted)
    llm = make_llm(model, tokenizer=ending_tokenizer())
    for propose in (lambda tokens, count: [], lambda tokens, count: [0] * count):
        request = llm._input_processor.prepare("x", {"prompt_token_ids": many[0]}, params, is_streaming=False)
        rules = request.sequences[0].rules
        text = reference.generate(model, many[0], propose, 4, params, rules)
        assert text == tokens_of(llm, [many[0]], params)[0]


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"json": {"$ref": "#"}}, "allows no text"),
        ({"grammar": "root ::= root"}, "allows no text"),
        (
            {"json": {"type": "object", "properties": {"a": {"not": {}}}}},
            'Unimplemented keys: ."not".: leave it out',
        ),
        ({"json": {"$ref": "https://example.org/schema.json"}}, "does not fetch"),
    ],
)
def test_what_allows_no_text_or_more_than_it_says_is_refused(subject, keys, told) -> None:
    llm = make_llm(subject[0], tokenizer=ending_tokenizer())
    for _ in range(2):  # also when it was asked for before
        with pytest.raises(ConfigError, match=told):
            llm.generate([subject[1][0]], SamplingParams(structured_outputs=keys))


@pytest.mark.parametrize("proposer", [None, "scripted", "asking"])
def test_a_grammar_that_becomes_too_much_ends_its_own_request(subject, monkeypatch, proposer) -> None:
    model, many = subject
    monkeypatch.setitem(compiler._LIMITS, "max_lexer_states", 20)
    method = {None: None, "scripted": scripted(k=4, wrong=1.0), "asking": scripted("Asking", k=3)}[proposer]
    if proposer == "asking":
        method["method"] = f"{__name__}.Asking"
    llm = make_llm(model, method, tokenizer=ending_tokenizer(), max_num_seqs=3)
    plain = SamplingParams(temperature=0.9, seed=1, max_tokens=30)
    hard = SamplingParams(
        temperature=0.9, seed=1, max_tokens=30, structured_outputs={"regex": "[a-l]*a[a-l]{40}"}
    )
    expected = tokens_of(llm, [many[0], many[2]], plain)
    first, ended, last = llm.generate(many[:3], [plain, hard, plain])
    assert ended.outputs[0].finish_reason == "error"
    assert "the grammar needs too much work" in str(ended.outputs[0].stop_reason)
    assert "make it simpler" in str(ended.outputs[0].stop_reason)
    assert [list(output.outputs[0].token_ids) for output in (first, last)] == [list(ids) for ids in expected]
    assert not engine_of(llm).has_work
