"""A proposer in vLLM's V2 model runner (`vllm/v1/worker/gpu`)."""
