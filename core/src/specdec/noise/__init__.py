"""Stateless noise: the counter-based generator Philox 4x32-10, keyed so that no draw is used twice.

This is public, for authors of samplers: with it, the same seed gives the same text in any batch. `exponentials` and
`uniforms` return tensors over the whole vocabulary, on any device. `row_operations` gives the operations of one device, which
draw with the same numbers and may compute only those that can matter. `node_word` encodes the purpose of a draw, so that no
draw serves two decisions.
"""

from specdec.noise.keys import SEED_BITS, Stream, node_word, signed
from specdec.noise.philox import exponentials, uniforms
from specdec.noise.torch_rows import row_operations

__all__ = ["SEED_BITS", "Stream", "exponentials", "node_word", "row_operations", "signed", "uniforms"]
