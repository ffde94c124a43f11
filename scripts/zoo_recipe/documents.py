"""Training texts of the zoo's models: files, and dialogues made from them."""

from __future__ import annotations

from zoo_recipe.corpus import Corpus
from zoo_recipe.dialogues import dialogues
from zoo_recipe.recipe import Recipe


def training_texts(corpus: Corpus, recipe: Recipe) -> list[str]:
    """Texts of the training split: every file, then dialogues that ask to write or edit functions."""
    files = corpus.split("train")
    return [file.text for file in files] + dialogues(
        files, num_written=recipe.num_written, num_edited=recipe.num_edited, seed=recipe.seed
    )
