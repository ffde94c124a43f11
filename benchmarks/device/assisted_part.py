"""Part 2: comparison with transformers' assisted generation, one prompt at a time as transformers requires."""

from __future__ import annotations

from common.case import Case, CaseResult, run_case
from common.variant import Variant

from device.local import LocalPool
from device.models import Models
from device.plan import AssistedPlan


def run_assisted(models: Models, plan: AssistedPlan, dtype: str) -> CaseResult:
    """Run the rounds: both engines with the same target, draft and k, and both without a draft."""
    name, draft = f"draft_model k={plan.k}", models.draft
    ours = {"method": "draft_model", "model": draft, "num_speculative_tokens": plan.k}
    theirs = {"assistant_model": draft, "num_assistant_tokens": plan.k}
    assisted = (
        Variant.make("specdec", name, dtype, {"speculative_config": ours}),
        Variant.make("transformers", name, dtype, theirs),
    )
    plain = (Variant.make("specdec", "none", dtype), Variant.make("transformers", "none", dtype))
    prompts = models.prompts(plan.num_prompts, plan.prompt_tokens)
    longest = max(map(len, prompts)) + plan.max_tokens + plan.k + 1
    case = Case(dtype, 1, prompts, (assisted, plain))
    return run_case(case, LocalPool(models, longest), plan.max_tokens, plan.rounds, models.gap_of())


def assisted_ratio(result: CaseResult) -> float | None:
    """Return the median ratio of our tokens per second to the peer's with a draft; None if the tokens differ."""
    ratio = result.rows[0].ratio
    return None if ratio is None else ratio.median
