"""The zoo's tokenizer: byte-level BPE that keeps Python's indentation in few tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

END_OF_TEXT = "<|endoftext|>"
USER = "<|user|>"
ASSISTANT = "<|assistant|>"
SYSTEM = "<|system|>"
SPECIAL_TOKENS = (END_OF_TEXT, USER, ASSISTANT, SYSTEM)

# A line break includes the next line's indentation; other runs of blanks stay whole; a single
# blank belongs to the word after it.
PRETOKEN_PATTERN = r"(?:\r?\n)+[ \t]*|[ \t]{2,}| ?[\p{L}\p{M}_]+| ?\p{N}{1,3}| ?[^\s\p{L}\p{M}\p{N}_]+|\s"

CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message['role'] not in ('system', 'user', 'assistant') -%}"
    "{{- raise_exception('unknown role ' ~ message['role'] ~ '; use system, user or assistant') -}}"
    "{%- endif -%}"
    "{{- '<|' ~ message['role'] ~ '|>' ~ message['content'] -}}"
    "{%- if message['role'] == 'assistant' -%}{{- eos_token -}}{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
)


def train_tokenizer(texts: Iterable[str], *, vocab_size: int, max_length: int) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer; encoding and decoding is lossless for every text.

    Args:
        texts: training texts; held-out text must not be among them.
        vocab_size: number of ids, special tokens and the 256 bytes included.
        max_length: the model's context length in tokens, written into the tokenizer's configuration.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRETOKEN_PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer=trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TEXT,
        pad_token=END_OF_TEXT,
        additional_special_tokens=[USER, ASSISTANT, SYSTEM],
        clean_up_tokenization_spaces=False,
        model_max_length=max_length,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def load_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """Load a tokenizer saved by `save_pretrained`."""
    tokenizer: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(folder)
    return tokenizer


def encode(tokenizer: PreTrainedTokenizerFast, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of each text, which may be longer than the model's context."""
    encodings = tokenizer.backend_tokenizer.encode_batch(list(texts), add_special_tokens=False)
    return [encoding.ids for encoding in encodings]


def token_id(tokenizer: PreTrainedTokenizerFast, token: str) -> int:
    """Id of a special token."""
    found = tokenizer.convert_tokens_to_ids(token)
    assert isinstance(found, int)
    return found
