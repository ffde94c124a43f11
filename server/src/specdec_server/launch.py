"""Loads a model and serves it until a signal."""

from __future__ import annotations

import gc
import logging
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import uvicorn

from specdec import AsyncLLM, ConfigError
from specdec.cli.quiet import hush_libraries
from specdec.config.checkpoint import Checkpoint
from specdec.config.zoo import ZOO
from specdec_server.app import create_app
from specdec_server.arguments import split_options
from specdec_server.settings import RequestMetrics, Settings

logger = logging.getLogger("specdec")

LOG_LEVELS = ("debug", "info", "warning", "error")


def launch(
    words: Sequence[str],
    *,
    model: str | None,
    speculative_config: str | None,
    host: str,
    port: int,
    model_names: tuple[str, ...],
    api_key: str | None,
    chat_template: str | None,
    request_metrics: RequestMetrics,
    log_every_s: float,
    log_level: str,
) -> None:
    """Run a server. The address is taken before the model is loaded, so that one in use is told at once.

    Args:
        words: the model, if it stands alone, and options that are arguments of `LLM`.
        model: the model, if it is named by an option.
        speculative_config: as for `LLM`.
        host: where to listen.
        port: likewise.
        model_names: what requests may call the model; none for its own name.
        api_key: see `Settings`.
        chat_template: a file with a Jinja template, or the template.
        request_metrics: see `Settings`.
        log_every_s: see `Settings`.
        log_level: one of `LOG_LEVELS`.

    Raises:
        ConfigError: for what the user can mend.
    """
    if log_level not in LOG_LEVELS:
        raise ConfigError(f"--log-level {log_level!r} must be one of {', '.join(LOG_LEVELS)}")
    alone, arguments = split_options(words)
    target = _target(model, alone)
    template = None if chat_template is None else _template(chat_template)
    with _listening(host, port) as listener:
        hush_libraries()
        logging.basicConfig(format="%(levelname)s: %(message)s")
        logging.getLogger("specdec").setLevel(log_level.upper())
        llm = AsyncLLM(target, speculative_config=speculative_config, **arguments)
        if template is not None:
            _set_template(llm, template)
        # What is loaded stays: looking through it again and again would stop the engine for a moment each time.
        gc.collect()
        gc.freeze()
        settings = Settings(
            model_names=model_names or (target,),
            api_key=api_key,
            request_metrics=request_metrics,
            log_every_s=log_every_s,
        )
        config = uvicorn.Config(
            create_app(llm, settings), log_level=log_level, timeout_graceful_shutdown=5, access_log=False
        )
        try:
            with suppress(KeyboardInterrupt):  # uvicorn raises it again when it has shut down
                listener.listen(config.backlog)  # who connects from now on is answered once the server runs
                logger.info("serving %s at %s", settings.model_names[0], _url(listener))
                uvicorn.Server(config).run(sockets=[listener])
        finally:
            llm.shutdown()
            gc.unfreeze()


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _target(model: str | None, alone: Sequence[str]) -> str:
    given = [*alone, *([] if model is None else [model])]
    if len(given) > 1:
        raise ConfigError(f"serve takes one model, got {', '.join(map(repr, given))}")
    target = given[0] if given else ZOO
    if target != ZOO and (checkpoint := Checkpoint(target)).leads_nowhere:
        raise ConfigError(f"MODEL: {checkpoint.problem}")
    return target


def _template(given: str) -> str:
    if "{" in given:
        return given
    try:
        return Path(given).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--chat-template: cannot read {given!r}: {error}") from None


def _set_template(llm: AsyncLLM, template: str) -> None:
    tokenizer = llm.get_tokenizer()
    if tokenizer is None:
        llm.shutdown()
        raise ConfigError("--chat-template needs a model with a tokenizer")
    tokenizer.chat_template = template


def _listening(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to an address.

    Raises:
        ConfigError: if it cannot be.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP, or asyncio does not know that it may send small packets at once, and each answer waits 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"cannot listen at {host}:{port} ({error.strerror or error}): choose another --port or --host"
        ) from None
    return listener
