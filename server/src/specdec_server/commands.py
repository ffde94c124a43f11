"""`specdec serve`: a model behind the OpenAI interface."""

from __future__ import annotations

from typing import Annotated

import typer

from specdec import hookimpl
from specdec_server.settings import RequestMetrics

_CONTEXT = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "token_normalize_func": lambda name: name.replace("_", "-"),
}


@hookimpl
def specdec_register_commands(app: typer.Typer) -> None:
    """Add `specdec serve`."""
    app.command("serve", context_settings=_CONTEXT, options_metavar="[MODEL] [OPTIONS]")(serve)


def serve(
    context: typer.Context,
    model: Annotated[
        str | None,
        typer.Option(help="The same as MODEL."),
    ] = None,
    speculative_config: Annotated[
        str | None, typer.Option(metavar="JSON|FILE", help="How to speculate; default: not at all.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8000,
    served_model_name: Annotated[
        list[str] | None, typer.Option(help="What requests call the model; may be repeated. Default: MODEL.")
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="SPECDEC_API_KEY", help="Let in only who sends this key.")
    ] = None,
    chat_template: Annotated[
        str | None,
        typer.Option(metavar="FILE|TEXT", help="Jinja template of conversations; default: the tokenizer's."),
    ] = None,
    per_request_spec_decode_metrics: Annotated[
        RequestMetrics, typer.Option(help="What responses tell of their speculation.")
    ] = RequestMetrics.SUMMARY,
    tool_call_parser: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|CLASS", help="Format of calls of tools; default: as the chat template tells."
        ),
    ] = None,
    reasoning_parser: Annotated[
        str | None,
        typer.Option(metavar="NAME|CLASS", help="Format of reasoning; default: it stays in the content."),
    ] = None,
    max_stored_responses: Annotated[
        int, typer.Option(min=0, help="Answers of /v1/responses kept for previous_response_id.")
    ] = 1000,
    max_logprobs: Annotated[
        int, typer.Option(min=0, help="The most tokens that a request may have listed for each place.")
    ] = 20,
    allowed_origins: Annotated[
        str,
        typer.Option(metavar="JSON", help='Pages whose scripts may send requests, as a list; ["*"] for all.'),
    ] = "[]",
    root_path: Annotated[str, typer.Option(help="Path under which a proxy shows the server.")] = "",
    ssl_keyfile: Annotated[str | None, typer.Option(metavar="FILE", help="Key of TLS.")] = None,
    ssl_certfile: Annotated[str | None, typer.Option(metavar="FILE", help="Certificate of TLS.")] = None,
    disable_log_stats: Annotated[
        bool, typer.Option("--disable-log-stats", help="No line about speculation every ten seconds.")
    ] = False,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Serve a model over HTTP, with the OpenAI interface.

    MODEL is a directory, a hub id, a GGUF file, smollm2, or zoo, which is the default.

    Every argument of LLM is an option as well: --dtype bfloat16 --max-model-len 4096 --max-num-seqs 32
    --gpu-memory-utilization 0.8 --seed 1 --enforce-eager. Underscores and dashes are the same.
    """
    from specdec_server.http import Http
    from specdec_server.launch import launch

    http = Http(host, port, log_level, root_path, ssl_keyfile, ssl_certfile)
    launch(
        context.args,
        http,
        model=model,
        speculative_config=speculative_config,
        chat_template=chat_template,
        settings={
            "tool_parser": tool_call_parser,
            "reasoning_parser": reasoning_parser,
            "max_stored_responses": max_stored_responses,
            "model_names": tuple(served_model_name or ()),
            "api_key": api_key,
            "max_logprobs": max_logprobs,
            "allowed_origins": allowed_origins,
            "request_metrics": per_request_spec_decode_metrics,
            "log_every_s": 0.0 if disable_log_stats else 10.0,
        },
    )
