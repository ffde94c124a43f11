"""A toolkit for proposers that run a model: token selection, exact q, reduced vocabularies, draft trees."""

from specdec.drafting.assemble import draft_of
from specdec.drafting.chains import ChainCall, ChainLoop, Places
from specdec.drafting.checkpoint import HeadCheckpoint
from specdec.drafting.chooser import Choice, Chooser, Place
from specdec.drafting.head_config import HeadConfig
from specdec.drafting.head_proposer import HeadProposer
from specdec.drafting.passes import Piece, run
from specdec.drafting.sketch import Sketch
from specdec.drafting.vocabulary import DraftVocabulary, equal_vocabulary, reduced_vocabulary

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
