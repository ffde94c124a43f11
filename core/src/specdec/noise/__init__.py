"""Stateless noise: the counter-based generator Philox 4x32-10, keyed so that no draw is used twice.

For samplers, whoever writes them: the same seed then gives the same text in any batch. `exponentials` and `uniforms` are
tensors over the whole vocabulary, on any device; `race_rows` and `first_uniforms` are the same numbers on the host, made only
where they can matter. `node_word` says what a draw is for, so that no draw serves two decisions.
"""

from specdec.noise.host import first_uniforms, race_rows
from specdec.noise.keys import Stream, node_word
from specdec.noise.philox import exponentials, uniforms

__all__ = ["Stream", "exponentials", "first_uniforms", "node_word", "race_rows", "uniforms"]
