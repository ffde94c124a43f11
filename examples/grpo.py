"""GRPO with TRL, whose rollouts are specdec's: `python examples/grpo.py`, after `pip install trl`.

It trains the model to write `self.` often, on the CPU. Every step gives the engine the policy's weights. Each completion has a
seed, so rewards are the same with any speculation and with none. Several `--speculative-config` are compared: all generate the
same completions in every step, in turn, and the first one's are trained on.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from specdec import LLM, SamplingParams
from specdec.config import resolve_name

PROMPTS = (
    "class Node:\n    def __init__(self, value, parent=None):\n        self.value",
    "class Reader:\n    def __init__(self, stream, size=1024):\n        self._stream",
    "class Point:\n    def __init__(self, x=0, y=0):\n        self.x",
    "class TestSum(unittest.TestCase):\n    def setUp(self):\n        self.numbers",
)


def count_self(completions: Sequence[str], **_: Any) -> list[float]:
    """Return the reward of each completion."""
    return [float(text.count("self.")) for text in completions]


def first_difference(one: Sequence[Any], other: Sequence[Any], names: tuple[str, str]) -> str:
    """Return where the completions of two engines first differ: both ids, with their log probabilities."""
    number = next(i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a.token_ids != b.token_ids)
    pair = dict(zip(names, (one[number], other[number]), strict=True))
    ids = [text.token_ids for text in pair.values()]
    at = next((i for i, (a, b) in enumerate(zip(*ids, strict=False)) if a != b), min(map(len, ids)))
    said = [
        f"{name} {text.token_ids[at]} (log probability {text.logprobs[at][text.token_ids[at]].logprob:.6f})"
        if at < len(text.token_ids)
        else f"{name} had ended"
        for name, text in pair.items()
    ]
    return f"completion {number}, token {at}: {', '.join(said)}"


def counts(engine: LLM) -> dict[str, Any]:
    """Return what may make an engine's numbers differ: models without a compiled form, and errors of the proposer."""
    wanted = ("specdec:unfused_models", "specdec:proposer_errors")
    return {metric.name: metric.value for metric in engine.get_metrics() if metric.name in wanted}


class Rollouts:
    """TRL's `rollout_func`: completions of the policy as it is.

    Args:
        engines: by name; they get the policy's weights before each step's rollouts. The first one's completions are returned.
        params: those of every completion; the seeds follow the one here.

    Raises:
        RuntimeError: if engines differ in a completion.
    """

    def __init__(self, engines: Mapping[str, LLM], params: SamplingParams) -> None:
        self._engines, self._params = engines, params
        self.completions: list[list[list[int]]] = []
        """Ids of the completions, step by step."""
        self.seconds: dict[str, list[float]] = {name: [] for name in engines}
        """Times of each step's rollouts."""
        self.num_accepted: dict[str, list[int]] = {name: [] for name in engines}
        """Tokens of each step's completions that were drafted."""
        self.update_seconds: dict[str, list[float]] = {name: [] for name in engines}
        """Times of each step's update of the weights."""

    def __call__(self, prompts: Sequence[str], trainer: Any) -> dict[str, Any]:
        """Return one completion for each prompt; a prompt is there as often as it has completions."""
        weights = trainer.accelerator.unwrap_model(trainer.model).state_dict()
        step, names = len(self.completions), list(self._engines)
        seeds = range(self._params.seed + step * len(prompts), self._params.seed + (step + 1) * len(prompts))
        each, found = [self._params.clone(seed=seed) for seed in seeds], {}
        for name in names[step % len(names) :] + names[: step % len(names)]:
            begin = time.perf_counter()
            self._engines[name].update_weights(weights)
            updated = time.perf_counter()
            found[name] = self._engines[name].generate(list(prompts), each, use_tqdm=False)
            self.seconds[name].append(time.perf_counter() - updated)
            self.update_seconds[name].append(updated - begin)
            self.num_accepted[name].append(sum(output.metrics.num_accepted_tokens for output in found[name]))
        texts = {name: [output.outputs[0] for output in outputs] for name, outputs in found.items()}
        self.completions.append([text.token_ids for text in texts[names[0]]])
        for name in names:
            if [text.token_ids for text in texts[name]] != self.completions[-1]:
                where = first_difference(texts[names[0]], texts[name], (names[0], name))
                states = ", ".join(f"{each} {counts(engine)}" for each, engine in self._engines.items())
                raise RuntimeError(
                    f"step {step}: {name} and {names[0]} wrote different completions: {where}; {states}"
                )
        return {
            "prompt_ids": [output.prompt_token_ids for output in found[names[0]]],
            "completion_ids": self.completions[-1],
            "logprobs": [
                [step[i].logprob for i, step in zip(text.token_ids, text.logprobs, strict=True)]
                for text in texts[names[0]]
            ],
        }


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Train; returns, and prints as JSON, the mean reward of every step, its tokens, and what rollouts and updates took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="zoo", help="a directory or hub id, zoo or smollm2")
    parser.add_argument("--speculative-config", action="append", type=json.loads, help="JSON; null for none")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--generations", type=int, default=8, help="completions of a step, all of one prompt")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", default="grpo", help="where TRL writes")
    given = parser.parse_args(argv)

    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    model = str(resolve_name(given.model, dtype="float32"))
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    engines = {
        "plain" if config is None else config["method"]: LLM(
            model, dtype="float32", speculative_config=config, max_model_len=256
        )
        for config in given.speculative_config or [{"method": "suffix"}]
    }
    params = SamplingParams(temperature=1.0, seed=given.seed, max_tokens=given.tokens, logprobs=0)
    rollouts = Rollouts(engines, params)
    config = GRPOConfig(
        output_dir=given.folder,
        max_steps=given.steps,
        per_device_train_batch_size=given.generations,
        num_generations=given.generations,
        max_completion_length=given.tokens,
        learning_rate=1e-5,
        seed=given.seed,
        use_cpu=True,
        bf16=False,
        model_init_kwargs={"dtype": "float32"},
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=count_self,
        args=config,
        train_dataset=Dataset.from_dict({"prompt": PROMPTS}),
        processing_class=tokenizer,
        rollout_func=rollouts,
    )
    trainer.train()
    found = {
        "rewards": [entry["reward"] for entry in trainer.state.log_history if "reward" in entry],
        "num_tokens": [sum(map(len, completions)) for completions in rollouts.completions],
        "num_accepted": rollouts.num_accepted,
        "seconds": rollouts.seconds,
        "update_seconds": rollouts.update_seconds,
    }
    print(json.dumps(found))
    return found


if __name__ == "__main__":
    main()
