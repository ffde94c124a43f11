"""The backends keep the promises of the conformance kit."""

from __future__ import annotations

import pytest

from specdec_testing import BackendConformance


class TestCpu(BackendConformance):
    backend = "cpu"
    model = "tiny"


class TestLayers(BackendConformance):
    backend = "layers"
    model = "tiny"


@pytest.mark.gpu
class TestTriton(BackendConformance):
    backend = "triton"
    model = "tiny"
