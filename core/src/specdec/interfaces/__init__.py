"""The plugin interfaces of specdec: everything a plugin can see is defined and documented here.

Each role has a file: `proposer`, `scorer`, `sampler`, `backend`. The data that passes between them is in `batch` (input
of the proposer), `draft` (its output) and `score_batch` (input of the scorer); `Scores` and `Verdict` are
beside their roles. What runs a model is the scorer's; `specdec_runtime.interfaces` has what that of `specdec-runtime` gives to
proposers and asks of backends. What core leaves to packages of their own is in `part`, `chat`, `grammar` and `model_files`.
`SPECDEC_API` is the version of all these interfaces.
"""

from specdec.field_docs import show_fields
from specdec.interfaces.adapter import Adapter
from specdec.interfaces.async_verdict import AsyncVerdict, AsyncVerify
from specdec.interfaces.backend import Backend, Compiled, Declined, ReadsTransfer, Verify
from specdec.interfaces.batch import ProposeBatch, TargetTopK, TokenIds
from specdec.interfaces.capability import NEEDED_CAPABILITIES, Capability
from specdec.interfaces.chat import ChatOptions, ChatTemplates
from specdec.interfaces.device_nodes import DeviceNodes
from specdec.interfaces.draft import PADDING_ID, CheckedDraft, Draft, DraftSampling, DrawnNodes
from specdec.interfaces.draft_slots import DraftSlots
from specdec.interfaces.draws import Draws, NoiseKeys
from specdec.interfaces.finish import FinishReason
from specdec.interfaces.grammar import Grammars, GrammarState
from specdec.interfaces.layer_states import LayerStates
from specdec.interfaces.left_out import LeftOut
from specdec.interfaces.model_files import ModelFiles
from specdec.interfaces.observer import RequestStats, StepStats
from specdec.interfaces.one_time_work import count_one_time_work, one_time_work, step_time
from specdec.interfaces.part import Part
from specdec.interfaces.pass_memory import PassMemory, VerdictOffsets
from specdec.interfaces.proposer import SPECDEC_API, Proposer, ProposerConfig, RequestArgs, Resolve
from specdec.interfaces.request_table import RequestTable
from specdec.interfaces.row_block import LogitsRules, RowBlock
from specdec.interfaces.row_operations import Occurrences, RowOperations
from specdec.interfaces.sampler import Sampler, SamplerConfig, Verdict, VerifyBatch
from specdec.interfaces.score_batch import ScoreBatch, ScoredRow, ScoredSequence, SlotCache
from specdec.interfaces.scorer import Scorer, Scores, Tell, Weights
from specdec.interfaces.sent import Transfer, sent, sent_together
from specdec.interfaces.target import CheckpointReader, MakeForm, TargetHandle, TargetInfo
from specdec.interfaces.unread import NeedsTokens, UnreadVerdict

__all__ = [
    "NEEDED_CAPABILITIES",
    "PADDING_ID",
    "SPECDEC_API",
    "Adapter",
    "AsyncVerdict",
    "AsyncVerify",
    "Backend",
    "Capability",
    "ChatOptions",
    "ChatTemplates",
    "CheckedDraft",
    "CheckpointReader",
    "Compiled",
    "Declined",
    "DeviceNodes",
    "Draft",
    "DraftSampling",
    "DraftSlots",
    "DrawnNodes",
    "Draws",
    "FinishReason",
    "GrammarState",
    "Grammars",
    "LayerStates",
    "LeftOut",
    "LogitsRules",
    "MakeForm",
    "ModelFiles",
    "NeedsTokens",
    "NoiseKeys",
    "Occurrences",
    "Part",
    "PassMemory",
    "ProposeBatch",
    "Proposer",
    "ProposerConfig",
    "ReadsTransfer",
    "RequestArgs",
    "RequestStats",
    "RequestTable",
    "Resolve",
    "RowBlock",
    "RowOperations",
    "Sampler",
    "SamplerConfig",
    "ScoreBatch",
    "ScoredRow",
    "ScoredSequence",
    "Scorer",
    "Scores",
    "SlotCache",
    "StepStats",
    "TargetHandle",
    "TargetInfo",
    "TargetTopK",
    "Tell",
    "TokenIds",
    "Transfer",
    "UnreadVerdict",
    "Verdict",
    "VerdictOffsets",
    "Verify",
    "VerifyBatch",
    "Weights",
    "count_one_time_work",
    "one_time_work",
    "sent",
    "sent_together",
    "step_time",
]

show_fields(
    *(found for found in map(globals().get, __all__) if type(found) is type),
    *(Backend, Capability, DraftSampling, FinishReason, Proposer, Sampler, Scorer),
)
