"""A toolkit for proposers that run a model: token selection, exact q, reduced vocabularies, draft trees."""

from specdec_drafting.assemble import draft_of
from specdec_drafting.chain_growth import ChainGrowth
from specdec_drafting.checkpoint import HeadCheckpoint
from specdec_drafting.chooser import Choice, Chooser, Place
from specdec_drafting.drafter import DraftModule
from specdec_drafting.drafting_config import DraftingConfig
from specdec_drafting.head_config import HeadConfig
from specdec_drafting.head_proposer import HeadProposer
from specdec_drafting.partial_draft import PartialDraft
from specdec_drafting.passes import Piece, run
from specdec_drafting.proposer import DraftingProposer
from specdec_drafting.target_rows import TargetRows
from specdec_drafting.vocabulary import DraftVocabulary, equal_vocabulary, reduced_vocabulary

__all__ = [
    "ChainGrowth",
    "Choice",
    "Chooser",
    "DraftModule",
    "DraftVocabulary",
    "DraftingConfig",
    "DraftingProposer",
    "HeadCheckpoint",
    "HeadConfig",
    "HeadProposer",
    "PartialDraft",
    "Piece",
    "Place",
    "TargetRows",
    "draft_of",
    "equal_vocabulary",
    "reduced_vocabulary",
    "run",
]
