"""The plugin interfaces of specdec: everything a plugin can see is defined and documented here.

Each role has a file: `proposer`, `scorer`, `sampler`. The data that passes between them is in `batch` (input
of the proposer), `draft` (its output) and `score_batch` (input of the scorer); `Scores` and `Verdict` are
beside their roles. `SPECDEC_API` is the version of all these interfaces.
"""

from specdec.interfaces.batch import DeviceProposeBatch, HostIds, ProposeBatch
from specdec.interfaces.capability import NEEDED_CAPABILITIES, Capability
from specdec.interfaces.draft import PADDING_ID, Draft, DraftSampling
from specdec.interfaces.draws import Draws, NoiseKeys
from specdec.interfaces.finish import FinishReason
from specdec.interfaces.observer import RequestStats, StepStats
from specdec.interfaces.proposer import SPECDEC_API, Proposer, ProposerConfig, ResolveSpeculation
from specdec.interfaces.sampler import Sampler, SamplerConfig, Verdict, VerifyBatch
from specdec.interfaces.score_batch import ScoreBatch, ScoredSequence, SlotCache
from specdec.interfaces.scorer import Scorer, Scores
from specdec.interfaces.target import CheckpointReader, TargetHandle, TargetInfo

__all__ = [
    "NEEDED_CAPABILITIES",
    "PADDING_ID",
    "SPECDEC_API",
    "Capability",
    "CheckpointReader",
    "DeviceProposeBatch",
    "Draft",
    "DraftSampling",
    "Draws",
    "FinishReason",
    "HostIds",
    "NoiseKeys",
    "ProposeBatch",
    "Proposer",
    "ProposerConfig",
    "RequestStats",
    "ResolveSpeculation",
    "Sampler",
    "SamplerConfig",
    "ScoreBatch",
    "ScoredSequence",
    "Scorer",
    "Scores",
    "SlotCache",
    "StepStats",
    "TargetHandle",
    "TargetInfo",
    "Verdict",
    "VerifyBatch",
]
