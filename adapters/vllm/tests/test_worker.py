"""The worker: what it checks before and after the target is loaded, and what it lends of it."""

from __future__ import annotations

import logging
import sys
import time
from types import ModuleType, SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from speccheck.hosting import ChainRecorder
from stub_engine import HIDDEN, MAX_LEN, VOCAB, StubModel, StubParams, StubRunner
from stub_v2 import K, StubScheduler
from stub_v2 import StubRunner as V2Runner
from support import PROMPTS, add_all, known, stock_texts
from transformers import LlamaConfig

from specdec import ConfigError
from specdec_vllm.target import host_target
from specdec_vllm.v2.verify import StrictVerify
from specdec_vllm.workers.bound import BoundWorker

THEIRS = SimpleNamespace(method="custom_class", model="specdec_vllm.Proposer", num_speculative_tokens=4)


class StubWorker:
    """vLLM's worker."""

    use_v2_model_runner = False

    def __init__(self, vllm_config) -> None:
        self.vllm_config, self.is_shut_down = vllm_config, False

    def init_device(self) -> None:
        self.model_runner = StubRunner()

    def load_model(self, *, load_dummy_weights: bool = False) -> None:
        self.model_runner.model.is_loaded = True

    def compile_or_warm_up_model(self) -> str:
        return "compiled"

    def shutdown(self) -> None:
        self.is_shut_down = True


class Worker(BoundWorker, StubWorker):
    """Ours over the stub, as `CPUWorker` is over vLLM's."""


def vllm_config(
    specdec: dict | None, theirs=THEIRS, *, path: str = "/nowhere", size: int = 1, cached: bool = False
):
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        num_hidden_layers=3,
        num_attention_heads=2,
        eos_token_id=[3, 4],
        tie_word_embeddings=False,
    )
    model_config = SimpleNamespace(
        hf_config=config,
        seed=0,
        model=path,
        revision=None,
        tokenizer=path,
        tokenizer_revision=None,
        trust_remote_code=False,
        skip_tokenizer_init=True,
        dtype=torch.float32,
        max_model_len=MAX_LEN,
        enforce_eager=False,
        get_vocab_size=lambda: VOCAB,
        get_hidden_size=lambda: HIDDEN,
        try_get_generation_config=lambda: {},
    )
    return SimpleNamespace(
        model_config=model_config,
        speculative_config=theirs,
        additional_config={} if specdec is None else {"specdec": specdec},
        scheduler_config=SimpleNamespace(max_num_seqs=8),
        parallel_config=SimpleNamespace(tensor_parallel_size=size),
        cache_config=SimpleNamespace(enable_prefix_caching=cached),
    )


@pytest.fixture(autouse=True)
def ranks(monkeypatch):
    """Which rank this is; tests change it."""
    found = SimpleNamespace(rank=0, group=SimpleNamespace(broadcast=None))
    module = ModuleType("vllm.distributed")
    module.get_tensor_model_parallel_rank = lambda: found.rank  # type: ignore[attr-defined]
    module.get_tp_group = lambda: found.group  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm.distributed", module)
    return found


def started(*arguments, **keys) -> Worker:
    worker = Worker(vllm_config(*arguments, **keys))
    worker.init_device()
    worker.load_model()
    return worker


def test_a_worker_drafts_and_counts(caplog) -> None:
    texts = stock_texts()
    with caplog.at_level(logging.INFO, "specdec"):
        worker = started(known(texts))
        add_all(worker.model_runner)
        assert worker.model_runner.run() == texts
        counters = worker.specdec_counters()
        worker.shutdown()
    assert counters["vllm:spec_decode_num_accepted_tokens"] > 20
    assert (
        sum(counters["vllm:spec_decode_num_accepted_tokens_per_pos"])
        == counters["vllm:spec_decode_num_accepted_tokens"]
    )
    assert worker.is_shut_down
    assert "specdec drafts with 'recorder', at most 4 tokens, verified by 'strict'" in caplog.text
    assert f"spec_decode_num_drafts {counters['vllm:spec_decode_num_drafts']}" in caplog.text


def test_the_proposer_can_be_changed() -> None:
    texts = stock_texts()
    worker = started(known({}))
    first = worker._hosted
    worker.open_specdec(known(texts, num_speculative_tokens=2))
    add_all(worker.model_runner)
    assert worker.model_runner.run() == texts
    assert worker.specdec_counters()["vllm:spec_decode_num_accepted_tokens"] > 20
    assert first.counters()["specdec:num_steps"] == 0
    with pytest.raises(ConfigError, match="more than the 4"):
        worker.open_specdec(known(texts, num_speculative_tokens=5))


@pytest.mark.parametrize("is_eager", [False, True])
def test_other_layers_are_read_only_before_compiling(is_eager) -> None:
    texts = stock_texts()
    config = vllm_config(known(texts))
    config.model_config.enforce_eager = is_eager
    worker = Worker(config)
    worker.init_device()
    worker.load_model()
    assert worker.compile_or_warm_up_model() == "compiled"
    if is_eager:
        worker.open_specdec(known(texts, "ChainHiddenRecorder"))
        assert worker.model_runner.model.aux_layers == (0, 1)
    else:
        with pytest.raises(
            ConfigError, match=r"layers \[0, 1\], and vLLM has compiled it to give none: start"
        ):
            worker.open_specdec(known(texts, "ChainHiddenRecorder"))
    add_all(worker.model_runner)
    assert worker.model_runner.run() == texts
    assert worker.specdec_counters()["vllm:spec_decode_num_accepted_tokens"] > 20


def test_layers_that_were_compiled_stay() -> None:
    texts = stock_texts()
    worker = started(known({}, "ChainHiddenRecorder"))
    worker.compile_or_warm_up_model()
    for config in (known(texts), known(texts, "ChainHiddenRecorder")):
        worker.open_specdec(config)
        assert worker.model_runner.model.aux_layers == (0, 1)
        add_all(worker.model_runner)
        assert worker.model_runner.run() == texts
        assert worker.specdec_counters()["vllm:spec_decode_num_accepted_tokens"] > 20


def test_without_speculation_nothing_is_touched() -> None:
    worker = started(None, None)
    assert worker.specdec_counters() == {}
    assert "propose_draft_token_ids" not in vars(worker.model_runner)
    with pytest.raises(ConfigError, match="was not given"):
        worker.open_specdec({"method": "ngram"})
    worker.shutdown()
    assert worker.is_shut_down


def test_other_versions_end_the_start(monkeypatch) -> None:
    monkeypatch.setattr(sys.modules["vllm"], "__version__", "0.12.0")
    with pytest.raises(ConfigError, match=r"this is 0\.12\.0"):
        Worker(vllm_config({"method": "ngram"})).init_device()


@pytest.mark.parametrize("name", ["ChainRecorder", "ChainHiddenRecorder"])
def test_heads_are_warned_of_the_prefix_cache(caplog, name) -> None:
    with caplog.at_level(logging.WARNING, "specdec"):
        started(known({}, name), cached=True)
    assert ("--no-enable-prefix-caching" in caplog.text) is (name == "ChainHiddenRecorder")


def test_only_the_first_rank_has_a_proposer(ranks, monkeypatch) -> None:
    made = []
    monkeypatch.setattr(ChainRecorder, "load", lambda self, target: made.append(1))
    texts = stock_texts()
    ranks.rank = 1
    worker = started(known(texts), size=2)
    assert made == []
    assert worker.specdec_counters() == {}
    ranks.rank = 0
    started(known(texts), size=2)
    assert made == [1]
    with pytest.raises(ConfigError, match="tensor_parallel_size=2 only the first one drafts: use 'strict'"):
        started(known(texts, rejection_sample_method="block"), size=2)


REFUSED = {
    "trees": ({"method": "speccheck.proposers.Scripted"}, "vLLM verifies only chains"),
    "sampler": ({"rejection_sample_method": "typical"}, "not available in vLLM: use one of strict, block, probabilistic"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_vllm_cannot_do_is_refused(what) -> None:
    keys, message = REFUSED[what]
    with pytest.raises(ConfigError, match=message):
        started(known({}) | keys)


def weights() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return tuple(torch.randn(VOCAB, HIDDEN, generator=generator) for _ in range(2))


def lent(config, embed: torch.Tensor | None, head: torch.Tensor | None, bias: torch.Tensor | None = None):
    model = torch.nn.Module()
    model.model = torch.nn.Module()
    if embed is not None:
        model.model.embed_tokens = torch.nn.Embedding.from_pretrained(embed)
    if head is not None:
        model.lm_head = torch.nn.Module()
        model.lm_head.weight = torch.nn.Parameter(head, requires_grad=False)
        model.lm_head.bias = bias
    return host_target(config, model, torch.device("cpu"), 1000)


def test_whole_weights_are_shared() -> None:
    embed, head = weights()
    padded = torch.cat((embed, torch.zeros(5, HIDDEN)))  # vLLM pads a vocabulary
    target = lent(vllm_config(None), padded, head)
    assert target.embed_tokens.weight.data_ptr() == padded.data_ptr()
    assert target.lm_head.weight.data_ptr() == head.data_ptr()
    states = torch.randn(3, HIDDEN)
    assert torch.equal(target.lm_head(states), states @ head.T)
    assert torch.equal(target.embed_tokens(torch.tensor([VOCAB - 1]))[0], embed[-1])
    assert (target.eos_token_ids, target.max_num_seqs, target.num_layers) == ((3, 4), 8, 3)
    assert not target.has_aux_hidden_states


def test_spread_and_packed_weights_are_read_from_the_checkpoint(tmp_path) -> None:
    embed, head = weights()
    save_file({"model.embed_tokens.weight": embed, "lm_head.weight": head}, tmp_path / "model.safetensors")
    config = vllm_config(None, path=str(tmp_path))
    target = lent(config, embed[: VOCAB // 2], torch.zeros(VOCAB * HIDDEN // 8, dtype=torch.int32))
    assert torch.equal(target.embed_tokens.weight, embed)
    assert torch.equal(target.lm_head.weight, head)
    config.model_config.hf_config.tie_word_embeddings = True
    tied = lent(config, embed, None)
    assert tied.lm_head.weight.data_ptr() == embed.data_ptr()


@pytest.mark.parametrize("spread", [False, True])
def test_the_bias_of_the_projection_is_lent(tmp_path, spread) -> None:
    embed, head = weights()
    bias = torch.arange(float(VOCAB))
    save_file({"lm_head.weight": head, "lm_head.bias": bias}, tmp_path / "model.safetensors")
    target = lent(vllm_config(None, path=str(tmp_path)), embed, head, bias[:2] if spread else bias)
    states = torch.randn(3, HIDDEN)
    assert torch.allclose(target.lm_head(states), states @ head.T + bias)


def test_what_lies_in_the_cache_of_a_hub_is_read(tmp_path, monkeypatch) -> None:
    embed, head = weights()
    save_file({"model.embed_tokens.weight": embed, "lm_head.weight": head}, tmp_path / "model.safetensors")
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda name, **_: str(tmp_path))
    target = lent(vllm_config(None, path="someone/something"), embed[:2], head[:2])
    assert torch.equal(target.embed_tokens.weight, embed)
    assert torch.equal(target.lm_head.weight, head)


def test_what_cannot_be_lent_is_left_out() -> None:
    target = lent(vllm_config(None), None, None)
    assert (target.embed_tokens, target.lm_head) == (None, None)
    assert {c.value for c in target.gives} == {"hidden_states", "own_kv"}


@pytest.mark.slow
def test_adaptive_leaves_out_drafts_that_do_not_pay(monkeypatch) -> None:
    """Drafts that are mostly wrong, in an engine in which a row costs as much as a step: the texts stay, most drafts go."""
    texts = stock_texts(max_tokens=60)
    said: dict[bool, dict[str, list[int]]] = {}
    counted = {}
    for adaptive in (False, True):
        worker = started(known(texts, wrong=0.9, adaptive=adaptive))
        runner = worker.model_runner
        verify = runner._sample

        def slow(running, drafts, scheduled, verify=verify):
            time.sleep(0.001 * (1 + sum(map(len, drafts.values()))))
            return verify(running, drafts, scheduled)

        monkeypatch.setattr(runner, "_sample", slow)
        for index in range(8):
            runner.add(f"r{index}", PROMPTS[index % len(PROMPTS)], StubParams(max_tokens=60))
            said.setdefault(adaptive, {})[f"r{index}"] = runner.run(1000)[f"r{index}"]
        counted[adaptive] = worker.specdec_counters()
    assert said[True] == said[False]
    drafts = {adaptive: found["vllm:spec_decode_num_drafts"] for adaptive, found in counted.items()}
    assert 0 < drafts[True] < 0.5 * drafts[False]
    assert counted[True]["specdec:steps_without_drafts"] > 0


class StubV2Worker(StubWorker):
    """vLLM's worker with its V2 model runner."""

    use_v2_model_runner = True

    def init_device(self) -> None:
        self.model_runner = runner = V2Runner(
            {"x": [*PROMPTS[1], *range(9), *range(9)]}, {"x": len(PROMPTS[1])}
        )
        runner.model = StubModel()
        runner.get_model = lambda: runner.model
        runner.rejection_sampler = SimpleNamespace(sampler=None, use_block_verification=False)


class V2Worker(BoundWorker, StubV2Worker):
    """Ours over it."""


def v2_worker(specdec: dict, *, size: int = 1) -> V2Worker:
    theirs = SimpleNamespace(method="ngram_gpu", model="ngram_gpu", num_speculative_tokens=K)
    worker = V2Worker(vllm_config(specdec, theirs, size=size))
    worker.vllm_config.max_concurrent_batches = 2
    worker.init_device()
    worker.load_model()
    return worker


def test_the_v2_runner_gets_a_speculator_and_a_verification(v2_module, caplog) -> None:
    with caplog.at_level(logging.INFO, "specdec"):
        worker = v2_worker({"method": "ngram"})
    runner, sampler = worker.model_runner, worker.model_runner.rejection_sampler
    assert isinstance(runner.speculator, v2_module.Speculator)
    assert isinstance(sampler._verify, StrictVerify)
    assert "asks the proposer late" in caplog.text
    scheduler = StubScheduler(runner, 1)
    scheduler.add("x")
    assert scheduler.run() == runner.texts
    assert worker.specdec_counters()["vllm:spec_decode_num_accepted_tokens"] > 0
    worker.open_specdec({"method": "ngram", "rejection_sample_method": "block"})
    assert not hasattr(sampler, "_verify")
    assert sampler.use_block_verification
    worker.open_specdec({"method": "ngram", "rejection_sample_method": "probabilistic"})
    assert not sampler.use_block_verification
    with pytest.raises(ConfigError, match="'adaptive' has no effect in vLLM's V2 model runner"):
        worker.open_specdec({"method": "ngram", "adaptive": True})


def test_states_are_read_in_v2_and_the_host_waits(v2_module, caplog) -> None:
    with caplog.at_level(logging.WARNING, "specdec"):
        worker = v2_worker(known({}, "ChainHiddenRecorder"))
    assert "the host waits for the tokens of every step" in caplog.text
    assert worker.model_runner.use_aux_hidden_state_outputs
    assert worker.model_runner.model.aux_layers == (0, 1)


def test_other_ranks_of_v2_are_told_when_the_proposer_is_asked(v2_module, ranks) -> None:
    ranks.rank = 1
    ranks.group.broadcast_object = lambda found, src: "on_device"
    worker = v2_worker({"method": "ngram"}, size=2)
    assert worker.specdec_counters() == {}
    assert worker.model_runner.speculator._when == "on_device"
