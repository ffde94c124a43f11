"""Loads a model and serves it until a signal."""

from __future__ import annotations

import gc
import json
import logging
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from specdec import AsyncLLM, ConfigError, EngineOptions, SamplingParams
from specdec.config import ZOO, check_name
from specdec.frontend import no_drafts_warning
from specdec_cli import quiet_libraries
from specdec_server.app import create_app
from specdec_server.arguments import as_typed, split_options, with_file, without_foreign
from specdec_server.config_file import FileOptions
from specdec_server.data_parallel.rank import DataParallelRank
from specdec_server.host import names_of
from specdec_server.http import Http, HttpServer
from specdec_server.limits import Limits
from specdec_server.logs import set_up_logs
from specdec_server.reasoning import ReasoningParser
from specdec_server.settings import Settings
from specdec_server.startup import describe
from specdec_server.tools import ToolParser
from specdec_server.tools.registry import REASONING_PARSERS, TOOL_PARSERS, parser_class
from specdec_server.tracing import check_packages

logger = logging.getLogger("specdec")

_DEFAULTED = (
    "repetition_penalty", "presence_penalty", "frequency_penalty", "temperature", "top_k", "top_p", "min_p",
)  # fmt: skip
"""Parameters for which `--override-generation-config` may give defaults, as in vLLM."""


def launch(
    words: Sequence[str],
    http: Http,
    *,
    model: str | None,
    file: FileOptions,
    speculative_config: str | None,
    chat_template: str | None,
    settings: Mapping[str, Any],
    rank: DataParallelRank | None = None,
) -> None:
    """Run a server. The address is bound before the model is loaded, so an address in use is reported at once.

    Args:
        words: the model unless an option gives it, more served names, and options that are arguments of `LLM`.
        http: where to listen.
        model: the model, if an option gives it.
        file: options for what the command line does not give.
        speculative_config: as for `LLM`.
        chat_template: a file with a Jinja template, or the template itself.
        settings: fields of `Settings` and of its `Limits`; `model_names` may be empty, `allowed_origins` and
            `allowed_hosts` are JSON lists, and parsers are given by name.
        rank: rank of this engine among several behind one address; None for a single engine.

    Raises:
        ConfigError: for errors that the user can fix.
    """
    alone, given_arguments = split_options(words)
    if speculative_config is not None:
        if "speculative_config" in given_arguments:
            raise ConfigError("--speculative-config is given twice: as a whole and in parts")
        given_arguments["speculative_config"] = speculative_config
    arguments = without_foreign(with_file(given_arguments, file.arguments))
    named = arguments.pop("model", None)
    target, names = _target(model if alone or model else named, alone, settings["model_names"])
    limits = {field.name: settings[field.name] for field in fields(Limits)}
    given = {
        **{name: value for name, value in settings.items() if name not in limits},
        "limits": Limits(**limits),
        "model_names": names,
        "engine": None if rank is None else rank.index,
        "allowed_origins": _list_of(settings["allowed_origins"], "--allowed-origins"),
        "allowed_hosts": (*names_of(http.host), *_list_of(settings["allowed_hosts"], "--allowed-hosts")),
        **generation_defaults(settings["sampling_defaults"]),
        "chat_template_kwargs": _mapping_of(
            settings["chat_template_kwargs"], "--default-chat-template-kwargs"
        ),
        "tool_parser": tool_parser_named(settings["tool_parser"]),
        "reasoning_parser": reasoning_parser_named(settings["reasoning_parser"]),
    }
    checked = Settings(root=target, **given)
    markers = None if checked.reasoning_parser is None else checked.reasoning_parser.markers()
    if markers is not None:
        given_markers = arguments.get("reasoning_config")
        if isinstance(given_markers, str):
            given_markers = _mapping_of(given_markers, "--reasoning-config")
        arguments["reasoning_config"] = {**markers, **(given_markers or {})}
    check_packages(checked.otlp_traces_endpoint)
    template = None if chat_template is None else read_template(chat_template)
    with http.bound() as listener:
        quiet_libraries()
        set_up_logs(http.log_level, checked.engine)
        if rank is not None:
            if "device" not in arguments:
                size = arguments.get("tensor_parallel_size")
                rank.take_devices(size if isinstance(size, int) else 1)
            rank.take_memory(arguments)
        logger.info("loading %s", target)
        with ended_by_interrupts():
            llm = _engine(target, arguments, words)
        try:
            if template is not None:
                set_template(llm, template)
            if checked.chat_template_kwargs:
                check_template_variables(llm, checked.chat_template_kwargs)
            # Loaded objects stay alive; repeated garbage collection of them would pause the engine.
            gc.collect()
            gc.freeze()
            app = create_app(llm, checked)
            config = http.config(app, checked.limits)
            with suppress(KeyboardInterrupt):  # uvicorn raises it again after shutdown
                listener.listen(config.backlog)  # connections from now on wait until the server runs
                most = arguments.get("max_num_seqs", EngineOptions.max_num_seqs)
                greeting = f"{describe(llm, names, most)}, at {http.url(listener)}"
                HttpServer(config, app.state.service, greeting).run(sockets=[listener])
        finally:
            with ended_by_interrupts():
                nothing = no_drafts_warning(llm.method, llm.get_metrics())
                if nothing is not None:
                    logger.warning(nothing)
                llm.shutdown()
                gc.unfreeze()


@contextmanager
def ended_by_interrupts() -> Iterator[None]:
    """Let Ctrl-C end the process at once: unwinding would run into threads that are loading or computing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _engine(target: str, arguments: Mapping[str, Any], words: Sequence[str]) -> AsyncLLM:
    try:
        return AsyncLLM(target, **arguments)
    except ConfigError as error:
        raise ConfigError(as_typed(str(error), words)) from None


def _target(model: str | None, alone: Sequence[str], names: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Return the model and its served names; with `--served-model-name`, further words are more names, as in vLLM."""
    target, *others = [*([] if model is None else [model]), *alone] or [ZOO]
    if others and not names:
        raise ConfigError(f"serve takes one model, got {', '.join(map(repr, [target, *others]))}")
    check_name(target, "MODEL")
    return target, (*names, *others) or (target,)


def _list_of(text: str, option: str) -> tuple[str, ...]:
    with suppress(ValueError):
        found = json.loads(text)
        if isinstance(found, list) and all(isinstance(item, str) for item in found):
            return tuple(found)
    raise ConfigError(f'{option} {text!r} is not a JSON list of strings, such as ["*"]')


def _mapping_of(text: str | None, option: str) -> dict[str, Any]:
    with suppress(ValueError):
        found = json.loads(text or "{}")
        if isinstance(found, dict):
            return found
    raise ConfigError(f"{option} {text!r} is not a JSON object")


def generation_defaults(text: str | None) -> dict[str, Any]:
    """Return the fields of `Settings` that `--override-generation-config` gives.

    Raises:
        ConfigError: naming the parameter that is unknown or wrong.
    """
    option = "--override-generation-config"
    given = _mapping_of(text, option)
    unknown = [name for name in given if name not in (*_DEFAULTED, "max_new_tokens")]
    if unknown:
        raise ConfigError(f"{option}: {unknown[0]!r} is none of {', '.join(_DEFAULTED)}, max_new_tokens")
    most = given.pop("max_new_tokens", None)
    try:
        SamplingParams(**given, max_tokens=most)
    except ConfigError as error:
        raise ConfigError(f"{option}: {error}") from None
    return {"sampling_defaults": given, "max_new_tokens": most}


def check_template_variables(llm: AsyncLLM, variables: Mapping[str, Any]) -> None:
    """Raise unless the model's chat template reads these variables.

    Raises:
        ConfigError: naming the one that it does not read.
    """
    try:
        llm.chat_prompt([{"role": "user", "content": "x"}], chat_template_kwargs=dict(variables))
    except ConfigError as error:
        raise ConfigError(f"--default-chat-template-kwargs: {error}") from None


def tool_parser_named(name: str | None) -> type[ToolParser] | None:
    """Return the parser for a name or class path; None for None."""
    base: type[ToolParser] = ToolParser
    return None if name is None else parser_class(TOOL_PARSERS, name, base, "--tool-call-parser")


def reasoning_parser_named(name: str | None) -> type[ReasoningParser] | None:
    """Return the parser for a name or class path; None for None."""
    base: type[ReasoningParser] = ReasoningParser
    return None if name is None else parser_class(REASONING_PARSERS, name, base, "--reasoning-parser")


def read_template(given: str) -> str:
    """Return a chat template given as a file name or as text.

    Raises:
        ConfigError: if the file cannot be read.
    """
    if "{" in given:
        return given
    try:
        return Path(given).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--chat-template: cannot read {given!r}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"--chat-template: {given!r} is not UTF-8 text: {error.reason}") from None


def set_template(llm: AsyncLLM, template: str) -> None:
    """Set the chat template of a model's tokenizer.

    Raises:
        ConfigError: if there is no tokenizer.
    """
    tokenizer = llm.get_tokenizer()
    if tokenizer is None:
        raise ConfigError("--chat-template needs a model with a tokenizer")
    tokenizer.chat_template = template
