"""The layouts this package reads, one file each."""

from specdec_plugin_mtp.layouts.deepseek import DEEPSEEK
from specdec_plugin_mtp.layouts.ernie import ERNIE
from specdec_plugin_mtp.layouts.layout import Layout, filled
from specdec_plugin_mtp.layouts.mimo import MIMO
from specdec_plugin_mtp.layouts.qwen3_next import QWEN3_NEXT

LAYOUTS = (DEEPSEEK, MIMO, ERNIE, QWEN3_NEXT)
"""No two have a tensor's name in common, so that the tensors of a checkpoint say which it is."""

__all__ = ["DEEPSEEK", "ERNIE", "LAYOUTS", "MIMO", "QWEN3_NEXT", "Layout", "filled"]
