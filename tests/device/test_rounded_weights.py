"""Rounded weights of `self` on the pretend device: which products run, and how many launches they take."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from pretend import PretendDevice
from transformers import LlamaConfig, LlamaForCausalLM

from specdec import LLM, SamplingParams
from specdec_runtime.backends import linears
from specdec_runtime.backends.linears import QuantizedForward, speed_up_quantized
from specdec_runtime.interfaces import QuantizedLinear

BFLOAT16 = torch.bfloat16
CONFIG = LlamaConfig(
    vocab_size=128, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=64, **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id")),
)  # fmt: skip


def laid_out(pairs: torch.Tensor, tiles: int) -> torch.Tensor:
    """`_convert_weight_to_int4pack` on the host: sizes as torch documents them, bytes in their order."""
    size, width = pairs.shape
    return pairs.contiguous().view(torch.int32).reshape(size // 8, 2 * width // (16 * tiles), 32, tiles // 2)


def multiplied(
    x: torch.Tensor, weight: torch.Tensor, group: int, scales_and_zeros: torch.Tensor
) -> torch.Tensor:
    """`_weight_int4pack_mm` on the host."""
    pairs = weight.reshape(8 * len(weight), -1).view(torch.uint8)
    numbers = torch.stack((pairs >> 4, pairs & 15), 2).view(len(pairs), -1, group).float() - 8
    scales, zeros = scales_and_zeros.float().transpose(0, 1).unbind(-1)
    wide = (numbers * scales[..., None] + zeros[..., None]).flatten(1)
    return (x.float() @ wide.T).to(x.dtype)


@pytest.fixture(scope="module")
def expected() -> Iterator[None]:
    """Products of 4 bits, which torch has on real devices alone."""
    library = torch.library.Library("aten", "IMPL")
    library.impl("_convert_weight_to_int4pack", laid_out, "CPU")
    library.impl("_weight_int4pack_mm", multiplied, "CPU")
    yield
    library._destroy()


@pytest.fixture(autouse=True)
def products_are_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here times are the host's."""
    monkeypatch.setattr(linears, "_seconds", lambda product, _: float(isinstance(product, QuantizedLinear)))


@pytest.mark.parametrize(("bits", "widened"), [(8, 4), (4, 7)])
def test_a_product_is_one_launch(bits: int, widened: int, device: PretendDevice) -> None:
    torch.manual_seed(0)
    if bits == 8:
        made = QuantizedLinear(torch.randint(-127, 128, (64, 96), dtype=torch.int8), torch.rand(64, 1) / 999)
    else:
        scales = torch.rand(64, 3, 1) / 99
        packed = torch.randint(0, 256, (64, 48), dtype=torch.uint8)
        made = QuantizedLinear(packed, torch.cat((-8 * scales, scales), 2).bfloat16())
    module, x = made.to("cuda:0"), torch.randn(3, 96, dtype=BFLOAT16).to("cuda:0")
    device.counted()
    own = module(x)
    assert device.counted().launches == widened
    speed_up_quantized(module, BFLOAT16)
    device.counted()
    got = module(x)
    assert device.counted().launches == 1
    assert isinstance(module.forward, QuantizedForward)
    torch.testing.assert_close(got.cpu(), own.cpu(), rtol=2**-6, atol=2**-6 * float(own.cpu().abs().max()))


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_drafts_read_rounded_weights(
    weights: str, device: PretendDevice, tmp_path, caplog: pytest.LogCaptureFixture
) -> None:
    LlamaForCausalLM(CONFIG).to(BFLOAT16).save_pretrained(tmp_path)
    llm = LLM(
        str(tmp_path), device="cuda:0", max_model_len=64, max_num_seqs=2, max_num_batched_tokens=64, num_gpu_blocks_override=40,
        enable_prefix_caching=False, skip_tokenizer_init=True,
        speculative_config={"method": "self", "weights": weights, "num_speculative_tokens": 3, "adaptive": False},
    )  # fmt: skip
    assert "torch widens" not in caplog.text
    runner = llm._built.engine.proposer._runner
    rounded = [module for module in runner.module.modules() if isinstance(module, QuantizedLinear)]
    assert rounded
    assert all(isinstance(module.forward, QuantizedForward) for module in rounded)
    params = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)
    llm.generate({"prompt_token_ids": [5, 6, 7, 8]}, params, use_tqdm=False)
    counted = {metric.name: getattr(metric, "value", 0) for metric in llm.get_metrics()}
    assert counted["vllm:spec_decode_num_accepted_tokens"] > counted["vllm:spec_decode_num_drafts"]
    llm.shutdown()
