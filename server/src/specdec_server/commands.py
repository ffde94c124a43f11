"""`specdec serve`: a model behind the OpenAI interface."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from specdec import hookimpl
from specdec_cli import loading
from specdec_server.config_file import FileOptions, take_file
from specdec_server.limits import Limits
from specdec_server.settings import RequestMetrics

_LIMITS = Limits()
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
    config: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            is_eager=True,
            callback=take_file,
            help="YAML file of options, for those that the command line does not give.",
        ),
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
        list[str] | None,
        typer.Option(
            envvar="SPECDEC_API_KEY",
            help="Let in only who sends this key, or one of several; may be repeated.",
        ),
    ] = None,
    data_parallel_size: Annotated[
        int,
        typer.Option(
            "--data-parallel-size",
            "-dp",
            min=1,
            help="Engine processes behind the port, each with the whole model.",
        ),
    ] = 1,
    uds: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Listen at this Unix socket instead of an address and a port."),
    ] = None,
    chat_template: Annotated[
        str | None,
        typer.Option(metavar="FILE|TEXT", help="Jinja template of conversations; default: the tokenizer's."),
    ] = None,
    default_chat_template_kwargs: Annotated[
        str | None,
        typer.Option(
            metavar="JSON", help="Variables of the chat template where a request does not give them."
        ),
    ] = None,
    override_generation_config: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help="Sampling parameters where a request does not give them; max_new_tokens limits all requests.",
        ),
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
        int, typer.Option(min=0, help="The most tokens that a request may have listed for each position.")
    ] = 20,
    allowed_origins: Annotated[
        str,
        typer.Option(metavar="JSON", help='Pages whose scripts may send requests, as a list; ["*"] for all.'),
    ] = "[]",
    allowed_hosts: Annotated[
        str,
        typer.Option(
            metavar="JSON",
            help='Without a key: more names that requests may call this server by, as a list; ["*"] for all.',
        ),
    ] = "[]",
    root_path: Annotated[str, typer.Option(help="Path under which a proxy shows the server.")] = "",
    ssl_keyfile: Annotated[str | None, typer.Option(metavar="FILE", help="Key of TLS.")] = None,
    ssl_certfile: Annotated[str | None, typer.Option(metavar="FILE", help="Certificate of TLS.")] = None,
    max_request_bytes: Annotated[
        int, typer.Option(help="The most bytes of a request's body; longer ones are refused with status 413.")
    ] = _LIMITS.max_request_bytes,
    max_queued_requests: Annotated[
        int, typer.Option(help="The most requests that wait to run; more are refused with status 429.")
    ] = _LIMITS.max_queued_requests,
    header_timeout: Annotated[
        float, typer.Option(help="Seconds in which a client must have sent the header of a request.")
    ] = _LIMITS.header_timeout_s,
    body_timeout: Annotated[
        float, typer.Option(help="Seconds in which a client must have sent the body of a request.")
    ] = _LIMITS.body_timeout_s,
    idle_timeout: Annotated[
        float,
        typer.Option(
            help="Seconds that a connection stays open without a request or while nothing is read from it."
        ),
    ] = _LIMITS.idle_timeout_s,
    prepare_timeout: Annotated[
        float, typer.Option(help="Seconds that tokenizing a prompt and compiling its grammar may take.")
    ] = _LIMITS.prepare_timeout_s,
    otlp_traces_endpoint: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Where to send a span of each request, by OTLP; default: nowhere."),
    ] = None,
    disable_page: Annotated[
        bool, typer.Option("--disable-page", help="No page at / to chat with the model.")
    ] = False,
    disable_fastapi_docs: Annotated[
        bool, typer.Option("--disable-fastapi-docs", help="No API reference at /docs, no /openapi.json.")
    ] = False,
    disable_access_log: Annotated[
        bool, typer.Option("--disable-access-log", help="No line about each request.")
    ] = False,
    disable_log_stats: Annotated[
        bool, typer.Option("--disable-log-stats", help="No line about speculation every ten seconds.")
    ] = False,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Serve a model over HTTP, with the OpenAI interface.

    MODEL is a directory, a hub id, a GGUF file, smollm2, or zoo, which is the default.

    Every argument of LLM is an option as well: --dtype bfloat16 --max-model-len 4096 --max-num-seqs 32
    --gpu-memory-utilization 0.8 --seed 1 --enforce-eager. Underscores and dashes are the same. All of them may be in the file
    that --config names; the command line wins.
    """
    from specdec.config import check_first, check_name
    from specdec_server.arguments import check_options

    file: FileOptions = context.obj or FileOptions()
    # Before torch is imported.
    check_options(
        context.args, file.arguments, file.path, [str(each.name) for each in context.command.params]
    )
    check_first(speculative_config or file.arguments.get("speculative_config"))
    named = model or next(iter(context.args), file.arguments.get("model", "-"))
    if not named.startswith("-"):
        check_name(named, "MODEL")

    from specdec_server.http import Http

    http = Http(host, port, log_level, root_path, ssl_keyfile, ssl_certfile, uds=uds)
    http.check()  # an address in use is known before torch is imported
    options: dict[str, Any] = {
        "model": model,
        "file": file,
        "speculative_config": speculative_config,
        "chat_template": chat_template,
        "settings": {
            "tool_parser": tool_call_parser,
            "reasoning_parser": reasoning_parser,
            "max_stored_responses": max_stored_responses,
            "model_names": tuple(served_model_name or ()),
            "api_key": None if api_key is None else tuple(api_key),
            "max_request_bytes": max_request_bytes,
            "max_queued_requests": max_queued_requests,
            "header_timeout_s": header_timeout,
            "body_timeout_s": body_timeout,
            "idle_timeout_s": idle_timeout,
            "prepare_timeout_s": prepare_timeout,
            "otlp_traces_endpoint": otlp_traces_endpoint,
            "is_page_served": not disable_page,
            "are_docs_served": not disable_fastapi_docs,
            "is_access_logged": not disable_access_log,
            "max_logprobs": max_logprobs,
            "allowed_origins": allowed_origins,
            "allowed_hosts": allowed_hosts,
            "chat_template_kwargs": default_chat_template_kwargs,
            "sampling_defaults": override_generation_config,
            "request_metrics": per_request_spec_decode_metrics,
            "log_every_s": 0.0 if disable_log_stats else 10.0,
        },
    }
    if data_parallel_size > 1:
        from specdec_server.data_parallel.launch import launch_engines

        launch_engines(context.args, http, data_parallel_size, **options)
    else:
        with loading("the server"):  # imports take seconds before a model is loaded
            from specdec_server.launch import launch

        launch(context.args, http, **options)
