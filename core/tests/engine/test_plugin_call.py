"""What a plugin's call changes of the process is put back, whatever comes in the midst of it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
import torch
from torch.utils import _device as device_modes

from specdec.registry import plugin_call as module
from specdec.registry.plugin_call import call_plugin


def test_a_default_device_is_put_back_for_those_who_ask_for_it_and_set_it_next() -> None:
    before = torch.get_default_device()
    call_plugin(torch.set_default_device, "meta:0")
    assert torch.get_default_device() == before
    assert torch.empty(1).device == before
    assert device_modes.CURRENT_DEVICE is None
    torch.set_default_device(before)  # leaves the mode that torch believes active
    torch.set_default_device(None)
    assert torch.empty(1).device == before


@pytest.mark.parametrize(
    "raised", [[KeyboardInterrupt], [ValueError, KeyboardInterrupt], [KeyboardInterrupt, ValueError]]
)
def test_an_interruption_while_settings_are_put_back_is_raised_after_them(
    monkeypatch: pytest.MonkeyPatch, raised: list[type[BaseException]]
) -> None:
    put_back, left = module._put_back, list(raised)

    def interrupted(*arguments: object) -> list[str]:
        if left:
            raise left.pop(0)
        return put_back(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "_put_back", interrupted)
    handler = signal.getsignal(signal.SIGUSR1)
    with pytest.raises(KeyboardInterrupt):
        call_plugin(signal.signal, signal.SIGUSR1, signal.SIG_IGN)
    assert left == []
    assert signal.getsignal(signal.SIGUSR1) is handler


def test_an_exception_while_settings_are_put_back_is_the_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    put_back, left = module._put_back, [ValueError("from a handler")]

    def interrupted(*arguments: object) -> list[str]:
        if left:
            raise left.pop()
        return put_back(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "_put_back", interrupted)
    dtype = torch.get_default_dtype()
    with pytest.raises(ValueError, match="from a handler"):
        call_plugin(torch.set_default_dtype, torch.float64)
    assert torch.get_default_dtype() is dtype


ALARMS = """
import random, signal, time
from specdec.registry.plugin_call import call_plugin

def rings(*_):
    raise RuntimeError("the alarm")

def plugin(seconds):
    signal.signal(signal.SIGALRM, rings)
    signal.setitimer(signal.ITIMER_REAL, seconds)

end, heard = time.monotonic() + 3.0, 0
while time.monotonic() < end:
    try:
        call_plugin(plugin, random.uniform(1e-6, 6e-5))
    except RuntimeError:
        heard += 1
assert heard > 20, heard
"""


@pytest.mark.slow
def test_an_alarm_may_ring_at_any_moment() -> None:
    """It must find its handler, or be off: with the default handler it would end the process."""
    done = subprocess.run([sys.executable, "-c", ALARMS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
