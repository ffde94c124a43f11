"""Requests and responses shown in the OpenAPI document; the tests send the requests and compare the responses' fields.

Fields that are null are left out: FastAPI leaves them out of the document.
"""

from __future__ import annotations

from typing import Any

from specdec import __version__
from specdec_server.descriptions import ENGINE_METRICS

_SPECULATION = {
    "speculative_decoding": {
        "mean_acceptance_length": 3.0,
        "tokens_per_step": 2.0,
        "draft_acceptance_rate": 0.5,
        "acceptance_histogram": [0, 1, 0, 1],
        "num_spec_steps": 2,
        "num_steps": 4,
        "num_draft_tokens": 8,
        "num_accepted_draft_tokens": 4,
    }
}
_USAGE = {
    "prompt_tokens": 33,
    "completion_tokens": 8,
    "total_tokens": 41,
    "prompt_tokens_details": {"cached_tokens": 16},
    "completion_tokens_details": {
        "reasoning_tokens": 0,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    },
}
_CREATED = 1795676082
_MESSAGES = [{"role": "user", "content": "Write a haiku about the sea."}]

COMPLETION_REQUESTS: dict[str, Any] = {
    "a text to continue": {"prompt": "def read_lines(path):\n", "max_tokens": 32, "temperature": 0},
    "two samples, reproducible": {
        "prompt": "import ",
        "max_tokens": 8,
        "n": 2,
        "seed": 7,
        "temperature": 0.8,
    },
    "without drafts": {"prompt": "def main():\n", "max_tokens": 32, "temperature": 0, "speculative": False},
    "a stream that tells every draft": {
        "prompt": "class Stack:\n",
        "max_tokens": 32,
        "stream": True,
        "return_draft_steps": True,
    },
}
COMPLETION: dict[str, Any] = {
    "id": "cmpl-ce66a8a74035945f8fb789ae",
    "object": "text_completion",
    "created": _CREATED,
    "model": "zoo",
    "choices": [
        {
            "index": 0,
            "text": "    with open(path) as file:",
            "finish_reason": "length",
        }
    ],
    "usage": _USAGE,
    "metrics": _SPECULATION,
}

CHAT_REQUESTS: dict[str, Any] = {
    "a question": {"messages": _MESSAGES, "max_tokens": 64},
    "a stream with its usage": {
        "messages": _MESSAGES,
        "max_tokens": 64,
        "stream": True,
        "stream_options": {"include_usage": True},
    },
    "JSON by a schema": {
        "messages": [{"role": "user", "content": "Name a city and its country."}],
        "max_tokens": 64,
        "response_format": {
            "type": "json_schema",
            "json_schema": {
                "name": "city",
                "schema": {
                    "type": "object",
                    "properties": {
                        "city": {"type": "string", "maxLength": 12},
                        "country": {"type": "string", "maxLength": 12},
                    },
                    "required": ["city", "country"],
                    "additionalProperties": False,
                },
            },
        },
    },
    "shorter drafts": {
        "messages": _MESSAGES,
        "max_tokens": 64,
        "speculative": {"num_speculative_tokens": 2},
    },
}
CHAT: dict[str, Any] = {
    "id": "chatcmpl-0c4abf49d460187356bf9637",
    "object": "chat.completion",
    "created": _CREATED,
    "model": "smollm2",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Waves fold into waves"},
            "finish_reason": "stop",
        }
    ],
    "usage": _USAGE,
    "metrics": _SPECULATION,
}

RESPONSE_REQUESTS: dict[str, Any] = {
    "a question": {"input": "Write a haiku about the sea.", "max_output_tokens": 64},
    "not stored": {"input": "Write a haiku about the sea.", "max_output_tokens": 64, "store": False},
}
RESPONSE: dict[str, Any] = {
    "id": "resp_3c14a2ce9772bb0789e7971415346040f21bbbe81584c4a0",
    "object": "response",
    "created_at": _CREATED,
    "model": "smollm2",
    "status": "completed",
    "completed_at": _CREATED + 1,
    "max_output_tokens": 64,
    "metadata": {},
    "parallel_tool_calls": True,
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "truncation": "disabled",
    "background": False,
    "usage": {
        "input_tokens": 33,
        "input_tokens_details": {"cached_tokens": 32},
        "output_tokens": 8,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 41,
    },
    "output": [
        {
            "id": "msg_5fd2d38bac3a7a3a15d6743bf7f9b411",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [
                {"type": "output_text", "text": "Waves fold into waves", "annotations": [], "logprobs": []}
            ],
        }
    ],
    "metrics": _SPECULATION,
}
DELETED: dict[str, Any] = {"id": RESPONSE["id"], "object": "response", "deleted": True}

TOKENIZE_REQUESTS: dict[str, Any] = {
    "a text": {"prompt": "The sea is", "return_token_strs": True},
    "a conversation": {"messages": _MESSAGES},
}
TOKENS: dict[str, Any] = {
    "count": 3,
    "max_model_len": 8192,
    "tokens": [504, 3426, 314],
    "token_strs": ["The", "Ġsea", "Ġis"],
}
DETOKENIZE_REQUESTS: dict[str, Any] = {"tokens": {"tokens": [504, 3426, 314]}}
TEXT: dict[str, Any] = {"prompt": "The sea is"}

MODEL: dict[str, Any] = {
    "id": "smollm2",
    "object": "model",
    "created": _CREATED,
    "owned_by": "specdec",
    "root": "smollm2",
    "max_model_len": 8192,
}
MODELS: dict[str, Any] = {"object": "list", "data": [MODEL]}
SERVER_INFO: dict[str, Any] = {
    "version": __version__,
    "model": "smollm2",
    "root": "smollm2",
    "max_model_len": 8192,
    "dtype": "bfloat16",
    "device": "cpu",
    "has_docs": True,
    "has_chat_template": True,
    "speculative_config": {
        "method": "ngram",
        "num_speculative_tokens": 5,
        "rejection_sample_method": "strict",
    },
}
LOAD = {"server_load": 3}
RESET = {"success": True}
VERSION = {"version": __version__}
_ACCEPTED = "vllm:spec_decode_num_accepted_tokens"
METRICS = (
    f"# HELP {_ACCEPTED}_total {ENGINE_METRICS[_ACCEPTED]}\n"
    f"# TYPE {_ACCEPTED}_total counter\n"
    f'{_ACCEPTED}_total{{engine="0",model_name="smollm2"}} 51.0\n'
)
