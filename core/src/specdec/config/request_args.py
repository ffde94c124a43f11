"""What a request asks of the proposer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from specdec.config.resolve import ResolvedSpeculation
from specdec.errors import ConfigError
from specdec.messages import explain

if TYPE_CHECKING:
    from specdec.sampling_params import SamplingParams


def with_checked_args(params: SamplingParams, resolved: ResolvedSpeculation | None) -> SamplingParams:
    """Return the parameters with `args` as the class of the method's plugin has read them.

    Raises:
        ConfigError: for a method that is not loaded, and for wrong `args`.
    """
    asked = params.speculative
    if not asked or not asked.keys() & {"method", "args"}:
        return params
    choices = {} if resolved is None else resolved.proposer_config.choices(resolved.proposer_class)
    name = asked.get("method", next(iter(choices)) if len(choices) == 1 else None)
    if name not in choices:
        raise ConfigError(
            f"SamplingParams: speculative: 'method' is {name!r}; methods that are loaded: {', '.join(choices) or 'none'}"
        )
    kind = choices[name]
    try:
        args = kind.model_validate(dict(asked.get("args", {})))
    except ValidationError as error:
        raise ConfigError(explain(error, f"SamplingParams: speculative: args of {name!r}", kind)) from None
    return params.model_copy(update={"speculative": {**asked, "method": name, "args": args}})
