"""The draft of a step before it is scored: what a grammar forbids goes out."""

from __future__ import annotations

from specdec.config.notices import draft_ends
from specdec.engine.step import Step
from specdec.errors import ConfigError
from specdec.interfaces.draft import DrawnNodes


def constrain(step: Step) -> None:
    """Take nodes that a grammar forbids out of a step; rows with q stay as they are.

    A chain of point masses is cut before its first forbidden node, a tree after its last allowed one. Nodes
    drawn from q stay and are rejected: the presence of a node must not depend on its own token.
    """
    for place, row in enumerate(step.sampled):
        grammar = None if row.sequence.rules is None else row.sequence.rules.grammar
        if grammar is None or not row.nodes or _is_drawn(step.drawn, place):
            continue
        parents = None if row.parents is None else list(row.parents)
        allowed: list[bool] = []
        try:
            allowed = grammar.allowed_nodes(row.nodes, parents)
        except ConfigError:
            pass  # the text needs too much work, as its mask says next
        except BaseException as error:
            draft_ends("following a grammar", error)
        length = len(allowed) if parents is not None else (*allowed, False).index(False)
        while length and not allowed[length - 1]:
            length -= 1
        row.nodes = row.nodes[:length]
        row.parents = None if parents is None else parents[:length]
    step.unread = None


def _is_drawn(drawn: DrawnNodes | None, place: int) -> bool:
    return drawn is not None and (drawn.has_probs is None or bool(drawn.has_probs[place]))
