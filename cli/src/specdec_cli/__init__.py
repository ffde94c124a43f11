"""`specdec generate`, `chat` and `config`, and what other commands that show text need."""

from specdec_cli.default_model import choose_model
from specdec_cli.highlight import GUESSED, PLAIN, GrowingText, paint, takes_colour

__all__ = ["GUESSED", "PLAIN", "GrowingText", "choose_model", "paint", "takes_colour"]
