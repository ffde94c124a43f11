"""Answers that a head learns from: how long they may take."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from specdec_train.answers.collect import Collected
from specdec_train.heads import budget as budgets
from specdec_train.heads import gather as gathering
from specdec_train.heads.budget import Budget


def test_what_the_engine_compiles_takes_no_time_from_answers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    now = [1000.0]
    left: list[float] = []

    class SlowEngine:
        recorder = None

        def __init__(self, target: Any, max_model_len: int, recorder: Any) -> None:
            assert recorder is None  # no layers were named
            now[0] += 300.0

        def close(self) -> None: ...

    class OneMinute:
        def __init__(self, *_: Any) -> None:
            self.collected = Collected([])

        def run(self, engine: SlowEngine, deadline: float, is_interrupted: Any) -> None:
            left.append(deadline - now[0])
            now[0] += 60.0

    clock = SimpleNamespace(monotonic=lambda: now[0])
    for module in (gathering, budgets):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(gathering, "AnswerEngine", SlowEngine)
    monkeypatch.setattr(gathering, "Collector", OneMinute)
    options: Any = SimpleNamespace(
        answers=[], answers_file=tmp_path / "answers.jsonl", num_written=1, uses_given=False, max_tokens=8
    )
    target: Any = SimpleNamespace(
        tokenizer=object(),
        max_model_len=64,
        model=SimpleNamespace(config=SimpleNamespace(get_text_config=lambda: SimpleNamespace(vocab_size=9))),
    )
    budget = Budget(600.0, tmp_path / "budget.json")
    monkeypatch.setattr(gathering, "ChatTemplate", lambda tokenizer: None)
    gathering.gather(options, [], 64, target, budget, lambda: False)
    assert left == [pytest.approx(240.0)]  # 0.4 of ten minutes, all of it behind the compiling
    assert json.loads(budget.file.read_text()) == {"answer_seconds": 60.0}
