"""An engine without a model, for tests: new tokens depend only on the prompt."""

from __future__ import annotations

import time

from common.protocol import Counters, Load
from common.worker import serve

VOCABULARY = 997


def tokens_after(prompt: list[int], max_tokens: int) -> list[int]:
    """Return the tokens that every stub generates after `prompt`."""
    start = sum(prompt)
    return [(start + 31 * position) % VOCABULARY for position in range(max_tokens)]


class StubEngine:
    """Answers after a fixed time per token; with `wrong_at`, tokens are wrong from that position on.

    Args:
        seconds_per_token: time a batch takes per new token.
        wrong_at: position of the first wrong token, None for none.
        fail_on: a prompt that begins with this token raises; None for none.
    """

    def __init__(self, seconds_per_token: float, wrong_at: int | None, fail_on: int | None) -> None:
        self._seconds_per_token = seconds_per_token
        self._wrong_at = wrong_at
        self._fail_on = fail_on
        self._num_batches = 0

    def generate(self, prompts: list[list[int]], max_tokens: int) -> list[list[int]]:
        """Return the tokens of each prompt."""
        if self._fail_on is not None and any(prompt[0] == self._fail_on for prompt in prompts):
            raise ValueError(f"told to fail on {self._fail_on}")
        print("whatever an engine prints must not disturb the protocol")
        time.sleep(self._seconds_per_token * max_tokens)
        self._num_batches += 1
        rows = [tokens_after(prompt, max_tokens) for prompt in prompts]
        if self._wrong_at is None:
            return rows
        return [row[: self._wrong_at] + [token + 1 for token in row[self._wrong_at :]] for row in rows]

    def counters(self) -> Counters:
        """Return the number of batches."""
        return {"num_batches": self._num_batches}


def load(order: Load) -> StubEngine:
    """Make the engine of a load message."""
    settings = order["settings"]
    seconds, wrong_at, fail_on = (settings.get(k) for k in ("seconds_per_token", "wrong_at", "fail_on"))
    assert isinstance(seconds, float | int | None)
    assert isinstance(wrong_at, int | None)
    assert isinstance(fail_on, int | None)
    return StubEngine(seconds or 0.0, wrong_at, fail_on)


if __name__ == "__main__":
    serve(load, [])
