"""The supported layouts, one file each."""

from specdec_plugin_mtp.layouts.deepseek import DEEPSEEK
from specdec_plugin_mtp.layouts.ernie import ERNIE
from specdec_plugin_mtp.layouts.layout import Layout, filled
from specdec_plugin_mtp.layouts.mimo import MIMO
from specdec_plugin_mtp.layouts.qwen3_next import QWEN3_NEXT
from specdec_plugin_mtp.layouts.speculators import SPECULATORS

LAYOUTS = (DEEPSEEK, MIMO, ERNIE, QWEN3_NEXT, SPECULATORS)
"""No two layouts share a tensor name; names and the target's `model_type` together identify one."""

__all__ = ["DEEPSEEK", "ERNIE", "LAYOUTS", "MIMO", "QWEN3_NEXT", "SPECULATORS", "Layout", "filled"]
