"""What scripts for vLLM do with sampling parameters and `generate`."""

from __future__ import annotations

import sys

import pytest
from speccheck.engines import greedy, letter_tokenizer, make_llm, scripted, spelled

from specdec import LLM, SamplingParams
from specdec.errors import ConfigError, ContextLengthError


@pytest.fixture(scope="module")
def llm(subject) -> LLM:
    return make_llm(subject.model, scripted(), tokenizer=letter_tokenizer(), max_model_len=64)


def test_a_clone_has_the_parameters_and_the_changes() -> None:
    class Processor:
        def __call__(self, output, logits):
            return logits

    params = SamplingParams(temperature=0.5, stop=["a"], logits_processors=[Processor()], seed=-1)
    clone = params.clone()
    assert clone == params
    assert clone.stop is not params.stop
    assert clone.logits_processors[0] is params.logits_processors[0]
    changed = params.clone(temperature=0.0, max_tokens=3)
    assert (changed.temperature, changed.max_tokens, changed.stop) == (0.0, 3, ["a"])
    assert params.max_tokens == 16
    with pytest.raises(ConfigError, match="'max_tokns': did you mean 'max_tokens'"):
        params.clone(max_tokns=3)
    with pytest.raises(ConfigError, match=r"do not change: params.clone\(n=3\) returns a changed copy"):
        params.n = 3


def test_output_without_text(llm, subject) -> None:
    prompt, params = subject.prompts[0], greedy(8, logprobs=1, prompt_logprobs=1)
    with_text, without = llm.generate([prompt, prompt], [params, params.clone(detokenize=False)])
    ids = with_text.outputs[0].token_ids
    assert with_text.outputs[0].text == spelled(ids)
    assert (without.outputs[0].text, without.outputs[0].token_ids) == ("", ids)
    for entry in [*without.outputs[0].logprobs, *without.prompt_logprobs[1:]]:
        assert all(found.decoded_token is found.token_bytes is None for found in entry.values())
    with pytest.raises(ConfigError, match="stop strings are found in the text: leave out detokenize=False"):
        SamplingParams(stop="a", detokenize=False)


@pytest.mark.parametrize(("count", "max_tokens", "kept"), [(-1, 10, 54), (-1, None, 63), (5, 10, 5)])
def test_a_prompt_is_cut_to_its_last_tokens(llm, count, max_tokens, kept) -> None:
    prompt = [token % 100 for token in range(200)]
    params = greedy(max_tokens, truncate_prompt_tokens=count)
    for given in (prompt, spelled(prompt)):
        output = llm.generate([given], params)[0]
        assert output.prompt_token_ids == prompt[-kept:]
        assert len(output.outputs[0].token_ids) == (max_tokens or 1)


def test_a_prompt_that_fits_is_not_cut(llm) -> None:
    assert llm.generate([[5, 6, 7]], greedy(2, truncate_prompt_tokens=-1))[0].prompt_token_ids == [5, 6, 7]


def test_nothing_would_be_kept(llm) -> None:
    with pytest.raises(ContextLengthError, match=r"no room for the prompt .*: ask for at most 63 tokens"):
        llm.generate([[5]], greedy(64, truncate_prompt_tokens=-1))
    for count in (0, -2):
        with pytest.raises(ConfigError, match=f"'truncate_prompt_tokens' = {count}: must be at least 1, or"):
            SamplingParams(truncate_prompt_tokens=count)


@pytest.mark.parametrize(
    ("is_terminal", "use_tqdm", "is_shown"),
    [(True, None, True), (False, None, False), (True, False, False)],
)
def test_progress_is_shown_on_a_terminal(llm, is_terminal, use_tqdm, is_shown, monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    llm.generate([[5, 6, 7]] * 3, greedy(4), use_tqdm=use_tqdm)
    out, err = capsys.readouterr()
    assert out == ""
    assert ("generate" in err) == is_shown
