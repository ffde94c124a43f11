"""A tiny model on disk: a folder with weights and a byte-level tokenizer, as commands take it."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from speccheck.models import CONFIGS, make

VOCAB = 300
END_OF_TEXT = "<|endoftext|>"


def tokenizer(vocab_size: int = VOCAB) -> PreTrainedTokenizerFast:
    """Return a tokenizer whose tokens are mostly single bytes, so that random text is full of broken characters."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(["def main(self):\n    return self.value\n"] * 8, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token=END_OF_TEXT)


def save_tiny(folder: Path, name: str = "llama") -> Path:
    """Write the tiny model of a name in `CONFIGS`, with its tokenizer, and return the folder."""
    config = CONFIGS[name]()
    config.vocab_size = VOCAB
    make(config, seed=7).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder
