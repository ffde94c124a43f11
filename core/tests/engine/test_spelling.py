"""The text of a sample: characters of several tokens, bytes that are no text, and what the prompt ends with."""

from __future__ import annotations

import random

import pytest
from speccheck.engines import make_llm, scripted
from speccheck.spelling import TOKENIZERS, ids_of, llama_tokenizer, saying, speaker

from specdec.text.detokenizer import IncrementalDetokenizer

E_ACUTE, BLOCK, FACE = b"\xc3\xa9", b"\xe2\x96\x93", b"\xf0\x9f\x98\x80"


@pytest.fixture(scope="module", params=TOKENIZERS)
def tokenizer(request):
    return TOKENIZERS[request.param]()


def text_of(tokenizer, prompt, output, skips: bool = True) -> str:
    stream = IncrementalDetokenizer(tokenizer, prompt, skip_special_tokens=skips)
    return "".join(map(stream.push, output))


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ([E_ACUTE, b"\xff", "x"], "é\ufffdx"),
        ([E_ACUTE, b"\xff\xfe"], "é\ufffd\ufffd"),
        ([E_ACUTE, b"\xe2", "x"], "é\ufffdx"),
        (["x", E_ACUTE, b"\xa9", E_ACUTE], "xé\ufffd"),
        (["x", BLOCK, FACE, "x"], "x▓😀x"),
    ],
)
def test_bytes_that_are_no_text_after_a_character(tokenizer, output, text) -> None:
    got = text_of(tokenizer, ids_of(tokenizer, "x"), ids_of(tokenizer, *output))
    assert got.startswith(text)


@pytest.mark.parametrize("head", [["x"], ["x", b"\xc3"], ["x", BLOCK], ["x", b"\xef\xbf\xbd"], [b"\xff"]])
@pytest.mark.sampled(5, slow=5)
def test_random_bytes_never_raise_and_are_what_the_tokenizer_says(tokenizer, head) -> None:
    """Where the tokenizer changes what it said before, the stream cannot follow; elsewhere it says the same."""
    draw = random.Random(0)
    known = [*range(256 + 5)]
    num_equal = 0
    for _ in range(300):
        prompt = ids_of(tokenizer, *head)
        output = draw.choices(known, k=draw.randint(1, 6)) + ids_of(tokenizer, "x")
        texts = [
            tokenizer.decode(prompt + output[:end], skip_special_tokens=True)
            for end in range(len(output) + 1)
        ]
        got = text_of(tokenizer, prompt, output)
        grown = [text for text in texts if not text.endswith("\ufffd")]
        is_steady = all(b.startswith(a) for a, b in zip([texts[0], *grown], grown, strict=False))
        if is_steady:
            num_equal += 1
            assert got == texts[-1][len(texts[0]) :], output
    assert num_equal > 50


@pytest.mark.parametrize(
    ("prompt", "output", "text"),
    [
        ([b"caf", E_ACUTE[:1]], [E_ACUTE[1:], "x"], "éx"),
        ([b"caf", E_ACUTE[:1]], ["x"], "x"),
        ([b"caf", BLOCK[:1]], [BLOCK[1:2], BLOCK[2:], "x"], "▓x"),
        ([b"caf", BLOCK[:2]], [BLOCK[2:], "x"], "▓x"),
        ([b"caf", FACE[:3]], ["x", "x"], "xx"),
        ([b"caf", FACE[:3]], [FACE[3:], "x"], "😀x"),
        ([FACE[:3]], [FACE[3:], b"\x96"], "😀\ufffd"),
        ([b"caf", b"\xef\xbf\xbd"], ["x"], "x"),
        ([b"caf", b"\xff"], ["x"], "x"),
        ([b"caf", BLOCK * 9], [BLOCK, "x"], "▓x"),
        ([b"caf", BLOCK * 9, BLOCK[:2]], [BLOCK[2:], BLOCK], "▓▓"),
        ([BLOCK[1:]], [BLOCK, "x"], "▓x"),
    ],
)
def test_the_text_begins_after_the_prompt(tokenizer, prompt, output, text) -> None:
    assert text_of(tokenizer, ids_of(tokenizer, *prompt), ids_of(tokenizer, *output)) == text


def test_a_replacement_character_that_was_said_is_shown_at_once(tokenizer) -> None:
    prompt = ids_of(tokenizer, "x")
    for said in ([b"\xef\xbf\xbd"], ["x", b"\xef\xbf\xbd"], [b"\xef\xbf\xbd" * 2]):
        assert text_of(tokenizer, prompt, ids_of(tokenizer, *said)) == tokenizer.decode(
            ids_of(tokenizer, *said)
        )


def test_half_a_character_is_held_back(tokenizer) -> None:
    assert text_of(tokenizer, ids_of(tokenizer, "x"), ids_of(tokenizer, "x", FACE[:3])) == "x"


def test_the_first_blank_of_a_text_is_stripped_and_no_other() -> None:
    tokenizer = llama_tokenizer()
    hi, blank = ids_of(tokenizer, "▁Hi"), ids_of(tokenizer, "▁")
    assert text_of(tokenizer, [1], hi + hi) == "Hi Hi"
    assert text_of(tokenizer, hi + [2] * 20, hi) == " Hi"
    assert text_of(tokenizer, [1], [*blank, *hi]) == " Hi"
    assert text_of(tokenizer, hi, [*blank, *hi]) == "  Hi"
    assert text_of(tokenizer, [1], [2] * 20 + hi, skips=False) == "</s>" * 20 + " Hi"


def test_a_blank_beside_half_a_character_is_shown() -> None:
    tokenizer = TOKENIZERS["byte level"]()
    half = len(tokenizer) - 3
    assert tokenizer.decode([half]) == " \ufffd"
    assert text_of(tokenizer, ids_of(tokenizer, "x"), [half]) == " "
    assert text_of(tokenizer, ids_of(tokenizer, "x"), [half, *ids_of(tokenizer, b"\x93", "x")]) == " ▓x"
    both = len(tokenizer) - 1  # the end of one character and the beginning of another
    assert text_of(tokenizer, ids_of(tokenizer, "x"), [half, both]) == " ▓"
    assert text_of(tokenizer, [half], [both, *ids_of(tokenizer, BLOCK[1:])]) == "▓▓"


def test_time_does_not_grow_with_tokens_that_say_nothing() -> None:
    tokenizer = llama_tokenizer()
    for output in ([2] * 5000, ids_of(tokenizer, b"\xff" * 5000), ids_of(tokenizer, b"\xc3" * 5000)):
        stream = IncrementalDetokenizer(tokenizer, ids_of(tokenizer, "x"), skip_special_tokens=True)
        for token_id in output:
            stream.push(token_id)
        assert len(stream._ids) < 32


@pytest.mark.parametrize("speculation", [None, scripted(k=3, wrong=0.5)], ids=["none", "chain"])
def test_a_stop_string_of_the_prompt_ends_nothing(tokenizer, speculation) -> None:
    llm = make_llm(speaker(tokenizer), speculation, tokenizer=tokenizer)
    prompt = ids_of(tokenizer, b"stop caf", b"\xef\xbf\xbd")
    said = ids_of(tokenizer, "x", "x", b"\xef\xbf\xbd")
    for stop in ("stop", "caf\ufffdx", "\ufffdx"):
        [output] = llm.generate([{"prompt_token_ids": prompt}], saying(said, stop=stop))
        assert (output.outputs[0].text, output.outputs[0].finish_reason) == ("xx\ufffd", "length")
    [output] = llm.generate([{"prompt_token_ids": prompt}], saying([*said, said[0]], stop="x\ufffd"))
    assert (output.outputs[0].text, output.outputs[0].token_ids) == ("x", said)
