"""A toolkit for proposers that run a model: token selection, exact q, reduced vocabularies, draft trees.

Names are loaded on first use, so the command can show its options without importing torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specdec_drafting.acceptance_watch import AcceptanceWatch
    from specdec_drafting.assemble import draft_of
    from specdec_drafting.aux_layers_config import AuxLayersConfig
    from specdec_drafting.chain_growth import ChainGrowth
    from specdec_drafting.chain_steps import ChainSteps
    from specdec_drafting.chains import ChainLoop, example_of
    from specdec_drafting.checkpoint import HeadCheckpoint
    from specdec_drafting.chooser import Choice, Chooser, Place
    from specdec_drafting.drafter import DraftModule
    from specdec_drafting.drafting_config import DraftingConfig
    from specdec_drafting.head_config import HeadConfig
    from specdec_drafting.head_parts import embedding_of, published_by_module, target_ids_of
    from specdec_drafting.head_proposer import HeadProposer
    from specdec_drafting.loop_rows import new_rows
    from specdec_drafting.own_ids import OwnIds
    from specdec_drafting.partial_draft import PartialDraft
    from specdec_drafting.passes import Piece, run
    from specdec_drafting.proposer import DraftingProposer, RowsProposer, StepDrafter
    from specdec_drafting.request_rows import RequestRows
    from specdec_drafting.request_slots import RequestSlots
    from specdec_drafting.target_rows import TargetRows
    from specdec_drafting.vocabulary import DraftVocabulary, equal_vocabulary, reduced_vocabulary

__all__ = [
    "AcceptanceWatch",
    "AuxLayersConfig",
    "ChainGrowth",
    "ChainLoop",
    "ChainSteps",
    "Choice",
    "Chooser",
    "DraftModule",
    "DraftVocabulary",
    "DraftingConfig",
    "DraftingProposer",
    "HeadCheckpoint",
    "HeadConfig",
    "HeadProposer",
    "OwnIds",
    "PartialDraft",
    "Piece",
    "Place",
    "RequestRows",
    "RequestSlots",
    "RowsProposer",
    "StepDrafter",
    "TargetRows",
    "draft_of",
    "embedding_of",
    "equal_vocabulary",
    "example_of",
    "new_rows",
    "published_by_module",
    "reduced_vocabulary",
    "run",
    "target_ids_of",
]

_HOME = {
    "AcceptanceWatch": "specdec_drafting.acceptance_watch",
    "draft_of": "specdec_drafting.assemble",
    "AuxLayersConfig": "specdec_drafting.aux_layers_config",
    "ChainGrowth": "specdec_drafting.chain_growth",
    "ChainSteps": "specdec_drafting.chain_steps",
    "ChainLoop": "specdec_drafting.chains",
    "example_of": "specdec_drafting.chains",
    "HeadCheckpoint": "specdec_drafting.checkpoint",
    "Choice": "specdec_drafting.chooser",
    "Chooser": "specdec_drafting.chooser",
    "Place": "specdec_drafting.chooser",
    "DraftModule": "specdec_drafting.drafter",
    "DraftingConfig": "specdec_drafting.drafting_config",
    "HeadConfig": "specdec_drafting.head_config",
    "embedding_of": "specdec_drafting.head_parts",
    "published_by_module": "specdec_drafting.head_parts",
    "target_ids_of": "specdec_drafting.head_parts",
    "HeadProposer": "specdec_drafting.head_proposer",
    "new_rows": "specdec_drafting.loop_rows",
    "OwnIds": "specdec_drafting.own_ids",
    "PartialDraft": "specdec_drafting.partial_draft",
    "Piece": "specdec_drafting.passes",
    "run": "specdec_drafting.passes",
    "DraftingProposer": "specdec_drafting.proposer",
    "RowsProposer": "specdec_drafting.proposer",
    "StepDrafter": "specdec_drafting.proposer",
    "RequestRows": "specdec_drafting.request_rows",
    "RequestSlots": "specdec_drafting.request_slots",
    "TargetRows": "specdec_drafting.target_rows",
    "DraftVocabulary": "specdec_drafting.vocabulary",
    "equal_vocabulary": "specdec_drafting.vocabulary",
    "reduced_vocabulary": "specdec_drafting.vocabulary",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'specdec_drafting' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
