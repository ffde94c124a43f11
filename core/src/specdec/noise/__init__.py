"""Stateless noise: the counter-based generator Philox 4x32-10, keyed so that no draw is used twice."""

from specdec.noise.keys import Stream, node_word
from specdec.noise.philox import exponentials, uniforms

__all__ = ["Stream", "exponentials", "node_word", "uniforms"]
