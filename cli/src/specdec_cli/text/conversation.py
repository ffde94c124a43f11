"""A conversation with a model: its messages and the statistics of its drafts."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from specdec.metrics import PerProposer
from specdec_cli.chat_prompt import chat_prompt
from specdec_cli.text.run_summary import summary
from specdec_cli.text.show_stream import show_stream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specdec import LLM, RequestOutput, SamplingParams
    from specdec.frontend import Prompt


class Conversation:
    """Messages and answers, shown as they are generated; a model without a chat template continues each message.

    Args:
        llm: the engine that answers.
        params: sampling parameters of every answer.
        system: system message; None for none.
    """

    def __init__(self, llm: LLM, params: SamplingParams, system: str | None) -> None:
        self._llm = llm
        self._params = params
        self._system = system
        self._messages: list[dict[str, str]] = []
        self._last: RequestOutput | None = None
        self._num_tokens = 0
        self.is_drafting = llm.method is not None
        """Whether the next answer uses drafts."""
        self.restart()

    def restart(self) -> None:
        """Forget all messages."""
        self._messages = [] if self._system is None else [{"role": "system", "content": self._system}]

    def ask(self, text: str) -> None:
        """Send a message and show the answer; Ctrl-C ends the answer, and the text so far is kept.

        Raises:
            ConfigError: if the conversation has become too long; the last message is dropped.
        """
        asked = [*self._messages, {"role": "user", "content": text}]
        params = self._params if self.is_drafting else self._params.model_copy(update={"speculative": False})
        tokenizer = self._llm.get_tokenizer()
        prompt: Prompt = text
        if tokenizer.chat_template is not None:
            prompt = cast("Prompt", chat_prompt(tokenizer, asked))
        self._last = None
        with suppress(KeyboardInterrupt):
            show_stream(
                self._kept(self._llm.stream(prompt, params)), tokenizer, is_coloured=True, is_wrapped=True
            )
        print()
        self._count(asked)

    def last_summary(self) -> str | None:
        """Return tokens, time and acceptance of the last answer in one line; None if there is no answer."""
        if self._last is None:
            return None
        return summary(len(self._last.outputs[0].token_ids), self._last.metrics, self._llm.sampler)

    def stats(self) -> list[str]:
        """Return lines about the last answer and about all answers."""
        last = self.last_summary()
        if last is None:
            return ["nothing has been answered yet"]
        assert self._last is not None
        metrics = self._last.metrics
        lines = [f"last answer: {last}"]
        if metrics.num_drafts:
            rates = (f"{count / metrics.num_drafts:.0%}" for count in metrics.accepted_per_position)
            lines.append(f"accepted at each position of a draft: {' '.join(rates)}")
        found = {m.name: m.values for m in self._llm.get_metrics() if isinstance(m, PerProposer)}
        accepted, counts = (found[f"specdec:proposer_{what}_tokens"] for what in ("accepted", "draft"))
        drafted = f"{sum(accepted.values())} of {sum(counts.values())} drafted tokens accepted"
        if len(counts) > 1:
            drafted += f": {', '.join(f'{name} {accepted[name]} of {counts[name]}' for name in counts)}"
        return [*lines, f"all answers: {self._num_tokens} tokens, {drafted}"]

    def _count(self, asked: list[dict[str, str]]) -> None:
        """Add the last answer, if there is one, to the messages and to the totals."""
        if self._last is None:
            return
        answer = self._last.outputs[0]
        self._messages = [*asked, {"role": "assistant", "content": answer.text}]
        self._num_tokens += len(answer.token_ids)

    def _kept(self, outputs: Iterator[Any]) -> Iterator[RequestOutput]:
        for self._last in outputs:
            yield self._last
