"""specdec's proposers in SGLang: `--speculative-algorithm SPECDEC`, with the configuration in `SPECDEC_CONFIG`."""

from specdec_sglang.plugin import register

__all__ = ["register"]
