"""Mixin that our workers add to vLLM's."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from specdec import ConfigError
from specdec.config import ResolvedSpeculation
from specdec.interfaces import RequestTable
from specdec_hosting import HostedProposer, open_proposer, resolve_for_host
from specdec_vllm.binding import Binding
from specdec_vllm.requests import Requests
from specdec_vllm.settings import KEY, Settings, read_settings, with_limit
from specdec_vllm.target import host_target
from specdec_vllm.verifier import Verifier
from specdec_vllm.versions import check_version

logger = logging.getLogger("specdec")

SAMPLERS = ("strict", "block", "probabilistic")
"""The values of `rejection_sample_method` that are supported in vLLM."""


class BoundWorker:
    """Mixin for a vLLM worker that binds a proposer to its runner once the target is loaded."""

    model_runner: Any
    vllm_config: Any
    use_v2_model_runner: bool
    _hosted: HostedProposer | None = None
    _settings: Settings | None = None
    _stock_sampler: Any = None
    _aux_layer_ids: tuple[int, ...] = ()
    _is_compiled = False

    def init_device(self) -> None:
        """Check versions and settings before anything is loaded, then call vLLM's own method."""
        import vllm

        check_version(vllm.__version__)
        self._settings = read_settings(self.vllm_config, is_v2=bool(self.use_v2_model_runner))
        super().init_device()  # type: ignore[misc]  # that of vLLM's worker

    def load_model(self, *, load_dummy_weights: bool = False) -> None:
        """Load the target, then the proposer."""
        super().load_model(load_dummy_weights=load_dummy_weights)  # type: ignore[misc]
        if self._settings is None:
            return
        if getattr(self.model_runner, "rejection_sampler", None) is not None:  # else another stage drafts
            self._stock_sampler = self.model_runner.rejection_sampler
            self.open_specdec(self._settings.speculative_config)

    def compile_or_warm_up_model(self) -> Any:
        """Call vLLM's own method, and record whether the target's auxiliary layers are fixed from now on."""
        done = super().compile_or_warm_up_model()  # type: ignore[misc]
        self._is_compiled = not self.vllm_config.model_config.enforce_eager
        return done

    def open_specdec(self, speculative_config: Mapping[str, Any]) -> None:
        """Replace the proposer, between requests: `llm.collective_rpc("open_specdec", args=(config,))`.

        Raises:
            ConfigError: for a configuration that is invalid or that this engine cannot run.
        """
        if self._settings is None or self._stock_sampler is None:
            raise ConfigError(
                f"additional_config[{KEY!r}] was not given when this engine was started, or it cannot be changed"
            )
        speculation = self._open(speculative_config, self._settings, SAMPLERS)
        sampler = speculation.sampler_class(speculation.sampler_config)
        if self.use_v2_model_runner:
            if speculation.config.adaptive:
                raise ConfigError(
                    f"additional_config[{KEY!r}]: 'adaptive' has no effect in vLLM's V2 model runner, which verifies as many "
                    "tokens in every step: leave it out, or set VLLM_USE_V2_MODEL_RUNNER=0"
                )
            self._bind_v2(sampler.name)
            return
        runner = self.model_runner
        noise: Literal["seeded", "none"] = "seeded" if sampler.name == "strict" else "none"
        requests = Requests(self.vllm_config.model_config.seed, noise)
        verifier = Verifier(self._stock_sampler, runner, requests, sampler)
        Binding(runner, requests, self._hosted, verifier, self._aux_layer_ids).attach()

    def _bind_v2(self, sampler: str) -> None:
        """Bind the proposer to vLLM's V2 model runner, whose own rejection sampler verifies what is not `strict`."""
        from vllm.distributed import get_tp_group

        from specdec_vllm.v2.speculator import Speculator, when_asked
        from specdec_vllm.v2.verify import StrictVerify

        runner, stock, hosted = self.model_runner, self._stock_sampler, self._hosted
        vars(stock).pop("_verify", None)
        if sampler == "strict":
            stock._verify = StrictVerify(stock.sampler, runner.num_speculative_steps)
        stock.use_block_verification = sampler == "block"
        is_spread = self.vllm_config.parallel_config.tensor_parallel_size > 1
        num_behind = self.vllm_config.max_concurrent_batches - 1
        has_probs = hosted is not None and hosted.drafts_probs and sampler != "strict"
        when = None if hosted is None else when_asked(hosted, num_behind)
        if is_spread:
            when = get_tp_group().broadcast_object(when, src=0)
        assert when is not None
        requests = Requests(self.vllm_config.model_config.seed, "all" if sampler == "strict" else "none")
        broadcast = get_tp_group().broadcast if is_spread else None
        layers = () if hosted is None else tuple(sorted(set(self._aux_layer_ids)))
        Speculator(
            hosted, when, runner, requests, num_behind, broadcast, has_probs=has_probs, aux_layer_ids=layers
        ).attach()
        if layers or runner.use_aux_hidden_state_outputs:
            runner.get_model().set_aux_hidden_state_layers(layers)
        runner.use_aux_hidden_state_outputs = bool(layers)
        if when == "in_time" and num_behind:
            logger.warning(
                "specdec: the proposer reads more than token ids, so the host waits for the tokens of every step before it "
                "drafts, and asynchronous scheduling gains nothing"
            )
        elif hosted is not None:
            logger.info("specdec asks the proposer %s, and the host does not wait", when.replace("_", " "))

    def _open(
        self, speculative_config: Mapping[str, Any], settings: Settings, samplers: tuple[str, ...]
    ) -> ResolvedSpeculation:
        """Resolve a configuration; on the drafting rank its proposer replaces the previous one."""
        config = with_limit(speculative_config, settings.num_speculative_tokens)
        runner = self.model_runner
        target = host_target(
            self.vllm_config, runner.get_model(), runner.device, settings.kv_cache_memory_bytes
        )
        if self.use_v2_model_runner:
            states = runner.req_states
            target = replace(target, table=RequestTable(states.all_token_ids.gpu, states.total_len.gpu))
        speculation = resolve_for_host(config, target, host="vLLM", samplers=samplers)
        self._check_parallel(speculation.sampler_class.name)
        if self._tensor_rank() == 0:
            hosted = open_proposer(speculation, target, host="vLLM", samplers=samplers)
            self._aux_layer_ids = self._layers_for(hosted)
            self._hosted = hosted
            self._say(self._hosted, speculation.sampler_class.name)
        return speculation

    def specdec_counters(self) -> dict[str, Any]:
        """Return the counters: `llm.collective_rpc("specdec_counters")[0]`; empty on ranks that do not draft."""
        return {} if self._hosted is None else self._hosted.counters()

    def shutdown(self) -> None:
        """Log the proposer's counters, then call vLLM's own method."""
        if self._hosted is not None:
            _log_counters(self._hosted.counters())
        super().shutdown()  # type: ignore[misc]

    def _tensor_rank(self) -> int:
        from vllm.distributed import get_tensor_model_parallel_rank

        return int(get_tensor_model_parallel_rank())

    def _check_parallel(self, sampler: str) -> None:
        size = self.vllm_config.parallel_config.tensor_parallel_size
        if size > 1 and sampler != "strict":
            raise ConfigError(
                f"additional_config[{KEY!r}]: 'rejection_sample_method': {sampler!r} needs the draft's probabilities on "
                f"every rank, and with tensor_parallel_size={size} only the first one drafts: use 'strict'"
            )

    def _layers_for(self, hosted: HostedProposer) -> tuple[int, ...]:
        """Return the target's auxiliary layers; they are fixed once vLLM has compiled or captured the target."""
        given = self._aux_layer_ids
        if not self._is_compiled:
            return hosted.aux_layer_ids
        if not set(hosted.aux_layer_ids) <= set(given):
            raise ConfigError(
                f"proposer {hosted.name!r} reads the target's layers {list(hosted.aux_layer_ids)}, and vLLM has compiled it "
                f"to give {list(given) or 'none'}: start the engine with this proposer, or with enforce_eager=True"
            )
        return given

    def _say(self, hosted: HostedProposer, sampler: str) -> None:
        logger.info(
            "specdec drafts with %r, at most %d tokens, verified by %r",
            hosted.name, hosted.num_speculative_tokens, sampler,
        )  # fmt: skip
        if hosted.needs_hidden and self.vllm_config.cache_config.enable_prefix_caching:
            logger.warning(
                "proposer %r reads hidden states, and vLLM has none of prefixes in its cache: requests that begin with one get "
                "no drafts; add --no-enable-prefix-caching",
                hosted.name,
            )


def _log_counters(counters: Mapping[str, Any]) -> None:
    shown = {
        name.split(":")[1]: counters[name]
        for name in (
            "vllm:spec_decode_num_drafts",
            "vllm:spec_decode_num_draft_tokens",
            "vllm:spec_decode_num_accepted_tokens",
            "specdec:proposer_errors",
            "specdec:proposer_nodes_cut",
            "specdec:proposer_overruns",
            "specdec:proposer_pauses",
            "specdec:adapter_failures",
        )
        if name in counters
    }
    if shown:
        logger.info("specdec: %s", ", ".join(f"{name} {value}" for name, value in shown.items()))
