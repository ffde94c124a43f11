"""A toolkit for proposers that run a model: token selection, exact q, reduced vocabularies, draft trees."""

from specdec_drafting.assemble import draft_of
from specdec_drafting.chains import ChainCall, ChainLoop, Places
from specdec_drafting.checkpoint import HeadCheckpoint
from specdec_drafting.chooser import Choice, Chooser, Place
from specdec_drafting.head_config import HeadConfig
from specdec_drafting.head_proposer import HeadProposer
from specdec_drafting.passes import Piece, run
from specdec_drafting.sketch import Sketch
from specdec_drafting.vocabulary import DraftVocabulary, equal_vocabulary, reduced_vocabulary

__all__ = [
    "ChainCall",
    "ChainLoop",
    "Choice",
    "Chooser",
    "DraftVocabulary",
    "HeadCheckpoint",
    "HeadConfig",
    "HeadProposer",
    "Piece",
    "Place",
    "Places",
    "Sketch",
    "draft_of",
    "equal_vocabulary",
    "reduced_vocabulary",
    "run",
]
