"""A toolkit for proposers that run a model: token selection, exact q, reduced vocabularies, draft trees.

Names are loaded on first use, so the command can show its options without importing torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec.faces import lazily

if TYPE_CHECKING:
    from specdec_runtime.drafting.aux_layers_config import AuxLayersConfig
    from specdec_runtime.drafting.chain_growth import ChainGrowth
    from specdec_runtime.drafting.chain_steps import ChainSteps
    from specdec_runtime.drafting.chains import ChainLoop, example_of
    from specdec_runtime.drafting.checkpoint import HeadCheckpoint
    from specdec_runtime.drafting.chooser import Choice, Chooser, DraftPosition
    from specdec_runtime.drafting.drafter import DraftModule
    from specdec_runtime.drafting.drafting_config import DraftingConfig
    from specdec_runtime.drafting.head_config import HeadConfig
    from specdec_runtime.drafting.head_parts import embedding_of, published_by_module, target_ids_of
    from specdec_runtime.drafting.last_states import LastStates
    from specdec_runtime.drafting.own_ids import OwnIds
    from specdec_runtime.drafting.partial_draft import PartialDraft, draft_of
    from specdec_runtime.drafting.passes import RowChunk, new_rows, run
    from specdec_runtime.drafting.proposer import (
        AcceptanceWatch,
        DraftingProposer,
        HeadProposer,
        RowsProposer,
        StepDrafter,
    )
    from specdec_runtime.drafting.reloading import ReloadingProposer
    from specdec_runtime.drafting.request_rows import RequestRows
    from specdec_runtime.drafting.request_slots import RequestSlots
    from specdec_runtime.drafting.target_rows import TargetRows
    from specdec_runtime.drafting.vocabulary import DraftVocabulary, equal_vocabulary, reduced_vocabulary

__all__ = [
    "AcceptanceWatch",
    "AuxLayersConfig",
    "ChainGrowth",
    "ChainLoop",
    "ChainSteps",
    "Choice",
    "Chooser",
    "DraftModule",
    "DraftPosition",
    "DraftVocabulary",
    "DraftingConfig",
    "DraftingProposer",
    "HeadCheckpoint",
    "HeadConfig",
    "HeadProposer",
    "LastStates",
    "OwnIds",
    "PartialDraft",
    "ReloadingProposer",
    "RequestRows",
    "RequestSlots",
    "RowChunk",
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

__getattr__ = lazily(__name__)
