"""specdec-kernels: backends that run models, attention and verification faster than core does with torch.

`cpu`: compiled loops. `layers`: fused torch layers. `cuda`: graphs, paged attention and device verification, made of the
operations in `triton`.
"""

__all__ = []
