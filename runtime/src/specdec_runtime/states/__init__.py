"""States of recurrent and convolution layers: one set for each request, rolled back to its last accepted token.

Such a layer keeps a state instead of keys and values, which a pass overwrites with the state after its last row. The states
before a pass are kept beside those after it, with the layer's inputs at drafted rows. If only some of these rows are
accepted, the next pass first runs them again in these layers, from the state before. `checkpoints.py` decides what to run
from which state, `split_forward.py` runs it, `pool.py` has the states.
"""

from specdec_runtime.states.request_states import RequestStates, layer_states

__all__ = ["RequestStates", "layer_states"]
