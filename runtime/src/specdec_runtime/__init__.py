"""specdec-runtime: the scorer of `transformers` models, and what heads and draft models share.

`scorers` packs a step into one pass of the target, which `loading` loads and `runner` runs on its KV cache, by the forms that
`backends` chooses; `states` keeps those of recurrent layers, `parallel` splits a target over processes. `drafting` is the
toolkit for proposers that run a model. `chat` applies chat templates, `gguf` reads GGUF files. `interfaces` has what proposers
and backends see of it. Core finds it by its entry points.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec.faces import lazily

if TYPE_CHECKING:
    from specdec_runtime.scorers.transformers import TransformersScorer

__all__ = ["TransformersScorer"]

__getattr__ = lazily(__name__)
