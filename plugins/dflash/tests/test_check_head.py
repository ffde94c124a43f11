"""`specdec check-head` tells whether a block's first row predicts, where a `config.json` says it wrongly or not at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from dflash_check.session import make_proposer, make_reference
from dflash_check.shape import Shape, make_head
from head_check.target import NUM_LAYERS, check, states_of

from specdec_plugin_dflash import DFlashProposer
from specdec_runtime.drafting import HeadCheckpoint
from specdec_runtime.drafting.checking import TargetStates

SHAPE = Shape()
LENGTH = 62


@pytest.mark.parametrize("is_at_anchor", [False, True])
def test_a_text_is_likelier_under_the_reading_that_drafted_it(tmp_path: Path, is_at_anchor: bool) -> None:
    """The files say that the first row predicts nothing; the text is drafted under either reading, block behind block."""
    path, tensors = make_head(tmp_path, SHAPE)
    reference = make_reference(replace(SHAPE, predicts_at_anchor=is_at_anchor), tensors)
    text, logs, size = [3, 8], [], SHAPE.block_size
    while len(text) < LENGTH:
        states = states_of(text, SHAPE.aux)[1:]
        guesses = reference.guesses(text, states, size if is_at_anchor else size - 1)
        logs.append(guesses.log_softmax(-1).max(-1).values[:2])
        text += [*guesses.argmax(-1).tolist(), 7][:size]

    final, *inputs = states_of(text, tuple(range(NUM_LAYERS + 1)))
    kind = DFlashProposer.Readings
    readings, texts = (
        kind(HeadCheckpoint(path, None), check().handle),
        [TargetStates(text, final, (*inputs,))],
    )
    published = readings.published()
    tried = [published, *readings.others(published, len(text))]
    found = [readings.likelihoods(reading, texts) for reading in tried]
    assert len({len(first) for first, _ in found} | {len(second) for _, second in found}) == 1
    right = int(is_at_anchor)
    for place, likelihoods in enumerate(found[right]):
        torch.testing.assert_close(likelihoods, torch.stack(logs)[:, place].double(), atol=3e-5, rtol=3e-5)
    assert torch.cat(found[right]).mean() > torch.cat(found[1 - right]).mean() + 0.2
    assert tried[1].remedy == '"sample_from_anchor": true in speculative_config'
    assert make_proposer(path, sample_from_anchor=True)._settings == tried[1].settings
    assert readings.facts()["predicts_at_anchor"] is False
