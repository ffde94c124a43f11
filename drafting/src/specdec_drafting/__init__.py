"""A toolkit for proposers that run a model: token selection, exact q, reduced vocabularies, draft trees."""

from specdec_drafting.acceptance_watch import AcceptanceWatch
from specdec_drafting.assemble import draft_of
from specdec_drafting.chain_growth import ChainGrowth
from specdec_drafting.checkpoint import HeadCheckpoint
from specdec_drafting.chooser import Choice, Chooser, Place
from specdec_drafting.drafter import DraftModule
from specdec_drafting.drafting_config import DraftingConfig
from specdec_drafting.head_config import HeadConfig
from specdec_drafting.head_parts import embedding_of, target_ids_of
from specdec_drafting.head_proposer import HeadProposer
from specdec_drafting.partial_draft import PartialDraft
from specdec_drafting.passes import Piece, run
from specdec_drafting.proposer import DraftingProposer, RowsProposer, StepDrafter
from specdec_drafting.request_rows import RequestRows
from specdec_drafting.target_rows import TargetRows
from specdec_drafting.vocabulary import DraftVocabulary, equal_vocabulary, reduced_vocabulary

__all__ = [
    "AcceptanceWatch",
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
    "RequestRows",
    "RowsProposer",
    "StepDrafter",
    "TargetRows",
    "draft_of",
    "embedding_of",
    "equal_vocabulary",
    "reduced_vocabulary",
    "run",
    "target_ids_of",
]
