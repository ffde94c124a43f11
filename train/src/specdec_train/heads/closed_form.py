"""Initialises an EAGLE-3 head by least squares: a linear map from the target's states to its next state. Whitens the inputs
of published heads."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_plugin_eagle import Eagle3Head
from specdec_runtime.models import input_embedding
from specdec_train.heads.data import split_batch
from specdec_train.heads.factored import set_whitened
from specdec_train.heads.loss_positions import LossPositions
from specdec_train.heads.own_token import read_own_token
from specdec_train.heads.states import StateReader, TargetStates
from specdec_train.heads.weights import weight_of
from specdec_train.precision import autocast

_RIDGE = 0.02
"""Added to the diagonal of the second moments of inputs scaled to size one."""
_NOISE = 0.005
"""Added likewise for whitening, which would otherwise amplify directions that hardly vary."""
_ROWS_PER_INPUT = 25
"""Positions to read per input dimension."""
_NUM_KEPT = 4096
"""Number of these positions on which sizes are measured."""
_FEWEST_PER_INPUT = 6
"""Minimum number of positions per input dimension, regardless of time; with fewer the solution overfits."""
_MOST_BATCHES = 256
_WIDEST = 20_000
"""Maximum number of input dimensions to solve for."""


@dataclass
class _Sums:
    """Second moments of inputs `[N, D]`, and their products with the regression targets `[N, H]`."""

    inputs: Tensor
    products: Tensor
    count: int = 0


@torch.no_grad()
def fit(head: Eagle3Head, reader: StateReader, batch_of: Callable[[int], Tensor], seconds: float) -> bool:
    """Fit a new head to the best linear prediction of the target's next state; return whether it could.

    `fc` receives the map of the states. The attention heads that read their own token (`read_own_token`)
    receive the map of the token, truncated to the rank of their width. From this start a head trains in
    minutes instead of hours.

    Args:
        head: a head made by `make_eagle3`, with its `fc` trained on whitened inputs (`factored.whiten`).
        reader: reads the target, with the layers that the head reads.
        batch_of: training batches.
        seconds: no further batch is read after this time.
    """
    target = reader.target
    size = head.body.config.hidden_size
    device = weight_of(head.norm).device
    width = size * (head.settings.num_states + 1)
    if head.fc is None or width > _WIDEST:
        return False
    table = weight_of(input_embedding(target))
    final = weight_of(target.base_model.norm).float()
    sums = _Sums(torch.zeros(width, width, device=device), torch.zeros(width, size, device=device))
    scale: Tensor | None = None
    kept: list[tuple[Tensor, Tensor]] = []
    started = time.monotonic()
    for step in range(_MOST_BATCHES):
        inputs, wanted = _rows(reader, batch_of(step).to(target.device), table, final)
        if scale is None:
            scale = _inverse_sizes(inputs)
            scale[-size:] = 1.0
        inputs = inputs * scale
        sums.inputs += inputs.T @ inputs
        sums.products += inputs.T @ wanted
        sums.count += len(inputs)
        if sum(len(rows) for rows, _ in kept) < _NUM_KEPT:
            kept.append((inputs, wanted))
        is_enough = sums.count >= _FEWEST_PER_INPUT * width
        is_late = is_enough and time.monotonic() - started >= seconds
        if is_late or sums.count >= _ROWS_PER_INPUT * width:
            break
    assert scale is not None
    _put(head, target, sums, scale, torch.cat([rows for rows, _ in kept]), torch.cat([w for _, w in kept]))
    return True


@torch.no_grad()
def whiten_inputs(
    head: Eagle3Head, reader: StateReader, batch_of: Callable[[int], Tensor], seconds: float
) -> None:
    """Whiten the inputs of `fc` of a published head; the map itself stays the same.

    Args:
        head: the head, with its `fc` trained on whitened inputs (`factored.whiten`).
        reader: reads the target, with the layers that the head reads.
        batch_of: training batches.
        seconds: no further batch is read after this time, once there are enough.
    """
    if head.fc is None:
        return
    size = head.fc.in_features
    moments, scale, count = torch.zeros(size, size, device=weight_of(head.norm).device), None, 0
    started = time.monotonic()
    for step in range(_MOST_BATCHES):
        tokens, is_answer = split_batch(batch_of(step).to(reader.target.device))
        states, at = _read(reader, tokens, is_answer)
        aux = states.aux if head.settings.uses_aux else (states.hidden,)
        inputs = head.joined(tuple(state.flatten(0, 1)[at - 1].float() for state in aux))
        if scale is None:
            scale = _inverse_sizes(inputs)
        inputs = inputs * scale
        moments += inputs.T @ inputs
        count += len(inputs)
        is_late = count >= _FEWEST_PER_INPUT * size and time.monotonic() - started >= seconds
        if is_late or count >= _ROWS_PER_INPUT * size:
            break
    assert scale is not None
    noise = _NOISE * torch.eye(size, device=scale.device)
    set_whitened(head.fc, weight_of(head.fc) / scale, scale, moments / count + noise)


def _inverse_sizes(inputs: Tensor) -> Tensor:
    """Return `[D]` factors that scale the inputs `[N, D]` to size one."""
    return inputs.square().mean(0).sqrt().clamp_min(1e-3).reciprocal()


def _read(reader: StateReader, tokens: Tensor, is_answer: Tensor | None) -> tuple[TargetStates, Tensor]:
    """Return the target's states of a batch, and the positions `[N]` of the flattened windows that count."""
    places = LossPositions(tokens, is_answer)
    with autocast(tokens.device.type):
        states = reader.read(tokens[:, :-1], torch.zeros(1, dtype=torch.int64, device=tokens.device))
    return states, places.rows(tokens.shape[1] - 2, 1, 0)[2]


def _rows(reader: StateReader, batch: Tensor, table: Tensor, final: Tensor) -> tuple[Tensor, Tensor]:
    """Return inputs `[N, D]` (states, next token) and the next state `[N, H]` without its norm's weight."""
    tokens, is_answer = split_batch(batch)
    states, at = _read(reader, tokens, is_answer)
    aux = torch.cat([a.flatten(0, 1)[at - 1].float() for a in states.aux], -1)
    ids = tokens[:, :-1].flatten()[at]
    embedded = F.rms_norm(table[ids].float(), (table.shape[1],))
    return torch.cat((aux, embedded), -1), states.hidden.flatten(0, 1)[at].float() / final


def _put(
    head: Eagle3Head, target: nn.Module, sums: _Sums, scale: Tensor, inputs: Tensor, wanted: Tensor
) -> None:
    """Solve the least-squares problem, and write the solution to the head's weights."""
    layer, config = head.body.layers[0], head.body.config
    size, width = config.hidden_size, layer.self_attn.head_dim  # type: ignore[union-attr]  # a module
    assert isinstance(width, int)
    assert head.fc is not None
    split = len(sums.inputs) - size
    diagonal = torch.eye(len(sums.inputs), device=scale.device) * (_RIDGE * sums.count)
    moments = sums.inputs + diagonal
    of_token = torch.linalg.solve(moments, sums.products)[split:]
    reads_token = config.num_key_value_heads >= 2 and width <= size
    products = sums.products[:split]
    shown = torch.zeros(size, size, device=scale.device)
    if reads_token:
        token = sums.inputs[split:, split:] / sums.count + 1e-3 * torch.eye(size, device=scale.device)
        root = torch.linalg.cholesky(token)
        left, sizes, right = torch.linalg.svd(root.T @ of_token)
        half = sizes[:width].sqrt()
        into = torch.linalg.solve(root.T, left[:, :width] * half)
        out = half[:, None] * right[:width]
        shown = into @ out
        products = products - sums.inputs[:split, split:] @ shown
    fused = torch.linalg.solve(moments[:split, :split], products)
    state = inputs[:, :split] @ fused
    lengths = state.square().mean(-1, keepdim=True).sqrt()
    guess = state / lengths * lengths.mean() + inputs[:, split:] @ shown
    set_whitened(
        head.fc,
        fused.T,
        scale[:split],
        sums.inputs[:split, :split] / sums.count + _NOISE * torch.eye(split, device=scale.device),
    )
    weight_of(head.hidden_norm).fill_(lengths.mean().item())
    likeness = F.cosine_similarity(guess, wanted).mean()
    weight_of(head.norm).mul_(likeness)  # the less certain a prediction, the flatter its distribution
    if reads_token:
        weight_of(layer.input_layernorm).fill_(1.0)
        read_own_token(head, target)  # type: ignore[arg-type]  # a PreTrainedModel
        repeats = config.num_attention_heads // config.num_key_value_heads
        attention = layer.self_attn
        assert isinstance(attention, nn.Module)
        values = weight_of(attention.get_submodule("v_proj"))
        values[:width] = 0.0
        values[:width, :size] = into.T
        output = weight_of(attention.get_submodule("o_proj"))
        output[:, : repeats * width] = (out.T / repeats).repeat(1, repeats)
