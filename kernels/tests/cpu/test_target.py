"""The processors that code is compiled for."""

import os
import subprocess
import sys

import pytest
from llvmlite import binding

from specdec_kernels.cpu.compiled.target import HOST_FEATURES, TARGETS, fitting
from specdec_kernels.cpu.loops.product import product_in_team

NAMES = {target.name: target for target in TARGETS}
V3 = NAMES["x86-64-v3"]


def processor(name: str, *more: str) -> dict[str, bool]:
    return dict.fromkeys((*NAMES[name].features, *more, "sse2"), True)


@pytest.mark.parametrize(
    ("features", "cpu", "expected"),
    [
        (processor("x86-64-v4-bf16"), "sapphirerapids", "x86-64-v4-bf16"),
        (processor("x86-64-v4-bf16"), "znver5", "x86-64-v4-bf16-zen"),
        (processor("x86-64-v4-vnni"), "icelake-server", "x86-64-v4-vnni"),
        (processor("x86-64-v3"), "znver3", "x86-64-v3"),
        (processor("x86-64-v3", "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"), "skylake-avx512", None),
        (processor("x86-64-v3") | {"fma": False}, "old", None),
        ({"neon": True, "sve": True}, "neoverse-v1", "aarch64"),
        ({}, "generic", None),
    ],
)  # fmt: skip
def test_a_processor_takes_the_code_that_does_all_it_can(features, cpu, expected):
    assert [target.name for target in fitting(features, cpu)][:1] == ([expected] if expected else [])


def told(program: str, **variables: str) -> str:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_CPU", "SPECDEC_CPU"))
    }
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment | variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


CHOICE = "from specdec_kernels.cpu.compiled.target import FEATURES, TARGET; print(TARGET and TARGET.name, len(FEATURES))"


def test_the_environment_may_name_a_target_or_another_processor():
    given = {"NUMBA_CPU_NAME": V3.cpu, "NUMBA_CPU_FEATURES": V3.flags}
    assert told(CHOICE, **given) == f"x86-64-v3 {len(V3.features)}"
    assert told(CHOICE, NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="") == "None 0"


def test_numba_compiles_for_it_unless_it_compiles_already():
    of_numba = (
        "from specdec_kernels.cpu.compiled.target import TARGET; from numba.core.registry import cpu_target;"
        "import specdec_kernels.cpu.loops.forward;"
        "_, cpu, features = cpu_target.target_context.codegen().magic_tuple();"
        "print(TARGET is None or (cpu, features) == (TARGET.cpu, TARGET.flags))"
    )
    assert told(of_numba) == "True"
    assert told("import numba; numba.njit(lambda: 1)(); " + CHOICE).startswith("None ")


def test_python_cannot_call_what_is_compiled_into_its_callers_alone():
    with pytest.raises(TypeError, match="only compiled functions call product_in_team: it needs cache=True"):
        product_in_team(0, None, None, None)


def test_a_variable_names_a_lower_target():
    lower = {"SPECDEC_CPU_TARGET": V3.name}
    if V3 in fitting(HOST_FEATURES, binding.get_host_cpu_name()):
        assert told(CHOICE, **lower) == f"x86-64-v3 {len(V3.features)}"
    wrong = "try: import specdec_kernels.cpu.compiled.target\nexcept Exception as error: print(error)"
    assert "SPECDEC_CPU_TARGET='pentium' is not one of " in told(wrong, SPECDEC_CPU_TARGET="pentium")


GREEDY = """
from specdec import LLM, SamplingParams
from specdec_kernels.cpu.compiled.target import FEATURES
llm = LLM("zoo", dtype="float32", max_model_len=256)
[output] = llm.generate(["import os\\nimport sys\\n"], SamplingParams(temperature=0, max_tokens=48, ignore_eos=True))
print(FEATURES.get("avx512f", False), output.outputs[0].token_ids)
"""


@pytest.mark.slow
@pytest.mark.skipif(V3 not in fitting(HOST_FEATURES, ""), reason="the processor lacks AVX2")
def test_a_processor_without_avx512_generates_the_same_greedy_tokens(capsys):
    exec(GREEDY)
    best = capsys.readouterr().out.strip().partition(" ")[2]
    assert told(GREEDY, SPECDEC_CPU_TARGET=V3.name, ATEN_CPU_CAPABILITY="avx2") == f"False {best}"
