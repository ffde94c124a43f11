"""What every engine owes the proposers that it hosts, in `model.generate`."""

from specdec_testing import HostConformance


class TestTransformers(HostConformance):
    host = "transformers"
