"""A toolkit for proposers that run a model: choosing tokens from logits, honest q, reduced vocabularies, drafts that grow,
checkpoints of heads."""

from specdec.drafting.assemble import draft_of
from specdec.drafting.checkpoint import HeadCheckpoint
from specdec.drafting.chooser import Choice, Chooser, Place
from specdec.drafting.sketch import Sketch
from specdec.drafting.vocabulary import DraftVocabulary, equal_vocabulary, reduced_vocabulary

__all__ = [
    "Choice",
    "Chooser",
    "DraftVocabulary",
    "HeadCheckpoint",
    "Place",
    "Sketch",
    "draft_of",
    "equal_vocabulary",
    "reduced_vocabulary",
]
