"""echo: drafts what followed the newest token when it last occurred in the same request."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from specdec import (
    Draft,
    FinishReason,
    ProposeBatch,
    Proposer,
    ProposerConfig,
    TargetInfo,
    hookimpl,
)


class EchoConfig(ProposerConfig):
    """The keys of `speculative_config` that are echo's own."""

    max_distance: int = Field(512, ge=1, description="How many tokens back an occurrence may lie.")


class Echo(Proposer):
    """Remembers for every request where each token occurred last, so that a step costs the same in any context."""

    name = "echo"
    api_version = 1
    Config = EchoConfig

    def __init__(self, config: EchoConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        self._max_distance = config.max_distance
        self._texts: dict[str, list[int]] = {}
        self._after: dict[str, dict[int, int]] = {}

    def propose(self, batch: ProposeBatch) -> Draft:
        """Take in what is new in every row, then draft where a draft is wanted."""
        drafts, first = [], 0
        for row, request_id in enumerate(batch.request_ids):
            news = batch.new_token_ids[first : first + batch.counts[row]].tolist()
            first += batch.counts[row]
            start = self._take_in(request_id, batch.starts[row], news)
            text = self._texts[request_id]
            most = batch.max_nodes[row]
            drafts.append([] if start is None else text[start : start + most])
        return Draft.from_lists(drafts)

    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        """Drop the state of these requests."""
        for request_id in request_ids:
            self._texts.pop(request_id, None)
            self._after.pop(request_id, None)

    def _take_in(self, request_id: str, start: int, news: list[int]) -> int | None:
        """Take in new tokens; return where to copy from, or None if the newest token is new to the text."""
        text = self._texts.setdefault(request_id, [])
        if start < len(text):  # forget from there: what is kept is taken in again
            news, text[:] = [*text[:start], *news], []
            self._after[request_id] = {}
        after = self._after.setdefault(request_id, {})
        for token in news:
            if text:
                after[text[-1]] = len(text)
            text.append(token)
        found = after.get(text[-1]) if text else None
        return None if found is None or len(text) - found > self._max_distance else found


@hookimpl
def specdec_register_proposers() -> type[Proposer]:
    """Return the class behind the method `echo`."""
    return Echo
