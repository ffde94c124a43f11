"""The Dockerfile and the Compose file: what they name is there, and the steps give a server that runs without rights.

The steps run in a container where an engine is at hand, else in a bare environment (`make test-container`).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from packages import ROOT, packages

from specdec_server.config_file import read_options
from specdec_server.http import Http

CONTAINER = ROOT / "server/container"
NOBODY = 65534


def steps() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile and what stands behind them."""
    lines = (CONTAINER / "Dockerfile").read_text().splitlines()
    return [
        (name, rest) for name, _, rest in (line.partition(" ") for line in lines if line and line[0] != "#")
    ]


def values(name: str) -> list[str]:
    return [rest for step, rest in steps() if step == name]


def command() -> list[str]:
    (entry,), (default,) = values("ENTRYPOINT"), values("CMD")
    return [*json.loads(entry), *json.loads(default)]


def ignored() -> tuple[list[str], list[str]]:
    """Return what the build leaves out and what it keeps."""
    lines = (CONTAINER / "Dockerfile.dockerignore").read_text().split()
    return [line for line in lines if line[0] != "!"], [line[1:] for line in lines if line[0] == "!"]


def test_what_the_dockerfile_copies_is_there_and_all_that_is_installed() -> None:
    copied = {rest.split()[0] for rest in values("COPY") if not rest.startswith("--from")}
    assert copied == set(ignored()[1])
    assert all((ROOT / name).exists() for name in copied)
    (install,) = [rest for rest in values("RUN") if "./server" in rest]
    wanted = {
        re.sub(r"\[.*", "", word.strip('"')) for word in install.split() if word.startswith(("./", '"./'))
    }
    assert {name.removeprefix("./").removesuffix("/*") for name in wanted} == copied - {"constraints.txt"}
    installed = {
        package.name for package in packages() if package.folder.relative_to(ROOT).parts[0] in copied
    }
    for package in packages():
        if package.name in installed:
            text = (package.folder / "pyproject.toml").read_text()
            siblings = set(
                re.findall(r'"(specdec-[\w-]+)(?:\[\w+\])?==', text.partition("[project.optional")[0])
            )
            assert siblings <= installed, package.name


def test_the_server_in_the_container_has_no_rights_and_is_watched() -> None:
    last = [name for name, _ in steps()][::-1]
    assert last.index("USER") < last.index("FROM")
    (user,) = values("USER")
    assert int(user) > 0, "a number, by which an orchestrator sees that it is not root"
    assert f"useradd --uid {user} " in " ".join(values("RUN"))
    assert f"--owner {user} /cache" in " ".join(values("RUN"))
    assert values("VOLUME") == ["/cache"]
    assert values("EXPOSE") == ["8000"]
    (check,) = values("HEALTHCHECK")
    assert "http://127.0.0.1:8000/health" in check
    assert "/cache/" in " ".join(values("ENV"))


def test_the_command_of_the_container_is_one_of_specdec(monkeypatch: pytest.MonkeyPatch) -> None:
    from specdec_cli.main import run

    served: list[tuple[Any, Http, dict[str, Any]]] = []
    monkeypatch.setattr(
        "specdec_server.launch.launch", lambda words, http, **more: served.append((words, http, more))
    )
    program, *words = command()
    assert program == "specdec"
    assert run(words) == 0
    entry = json.loads(values("ENTRYPOINT")[0])[1:]
    assert run([*entry, "--config", str(CONTAINER / "serve.yaml")]) == 0
    (first, http, more), (rest, other, from_file) = served
    assert (first, rest) == (["smollm2"], [])
    assert (http.host, http.port) == (other.host, other.port) == ("0.0.0.0", 8000)
    assert json.loads(more["speculative_config"])["method"] == "ngram"
    assert from_file["file"].arguments["speculative_config"]["method"] == "ngram"
    assert read_options(str(CONTAINER / "serve.yaml"))["model"] == "smollm2"


def test_compose_names_what_there_is() -> None:
    document = yaml.safe_load((CONTAINER / "compose.yaml").read_text())
    services = document["services"]
    mounted = {}
    for name, service in services.items():
        assert "restart" in service
        for volume in service["volumes"]:
            source, target = volume.split(":")[:2]
            mounted[name, target] = source
            assert (CONTAINER / source).is_file() if source.startswith(".") else source in document["volumes"]
    build = services["specdec"]["build"]
    assert (CONTAINER / build["context"] / build["dockerfile"]).resolve() == CONTAINER / "Dockerfile"
    assert mounted["specdec", services["specdec"]["command"][1]] == "./serve.yaml"
    scraped = yaml.safe_load((CONTAINER / "prometheus.yaml").read_text())["scrape_configs"]
    assert [
        target for job in scraped for config in job["static_configs"] for target in config["targets"]
    ] == ["specdec:8000"]
    assert mounted["prometheus", "/etc/prometheus/prometheus.yml"] == "./prometheus.yaml"
    (source,) = yaml.safe_load((CONTAINER / "grafana/sources.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert source["isDefault"]
    (board,) = yaml.safe_load((CONTAINER / "grafana/dashboards.yaml").read_text())["providers"]
    assert mounted["grafana", f"{board['options']['path']}/specdec.json"] == "./grafana/specdec.json"
    uid = json.loads((CONTAINER / "grafana/specdec.json").read_text())["uid"]
    assert f"/d/{uid}\n" in (CONTAINER / "compose.yaml").read_text()
    published = [port for service in services.values() for port in service.get("ports", [])]
    assert all(port.startswith("127.0.0.1:") for port in published), "nothing is open to a network by itself"


@pytest.mark.wheels
@pytest.mark.timeout(1800)
def test_the_steps_give_a_server_without_rights_that_answers() -> None:
    has_engine = (
        shutil.which("docker") and not subprocess.run(["docker", "info"], capture_output=True).returncode
    )
    with in_a_container() if has_engine else in_a_bare_environment() as url:
        body = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 8, "temperature": 0}
        request = urllib.request.Request(
            f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            assert json.load(answer)["choices"][0]["message"]["content"]
        with urllib.request.urlopen(f"{url}/server_info", timeout=60) as answer:
            assert json.load(answer)["speculative_config"]["method"] == "ngram"


@contextmanager
def in_a_container() -> Iterator[str]:
    """Build the image and run it."""
    build = ["docker", "build", "--quiet", "--file", str(CONTAINER / "Dockerfile"), str(ROOT)]
    image = subprocess.run(build, check=True, capture_output=True, text=True).stdout.strip()
    run = ["docker", "run", "--detach", "--rm", "--publish", "127.0.0.1::8000", image]
    name = subprocess.run(run, check=True, capture_output=True, text=True).stdout.strip()
    try:
        port = subprocess.run(["docker", "port", name, "8000"], check=True, capture_output=True, text=True)
        url = f"http://{port.stdout.strip()}"
        wait_for(url, lambda: True)
        yield url
    finally:
        subprocess.run(["docker", "kill", name], capture_output=True)


@contextmanager
def in_a_bare_environment() -> Iterator[str]:
    """Run the steps that do not need root, with folders of the container below another one, and the server as nobody."""
    with TemporaryDirectory(prefix="specdec-") as name:
        Path(name).chmod(0o755)
        environment = prepared(Path(name))
        yield from served(Path(name), environment)


def prepared(folder: Path) -> dict[str, str]:
    """Run the steps up to the command, with this machine's package indexes; return the environment of the container."""
    source, places = folder / "source", {"/opt/specdec": f"{folder}/specdec", "/cache": f"{folder}/cache"}
    source.mkdir()
    (folder / "cache").mkdir(mode=0o777)
    (folder / "cache").chmod(0o777)
    environment = {"PATH": f"{Path(sys.base_prefix) / 'bin'}:/usr/bin:/bin", "HOME": str(folder)}
    environment |= {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}
    left_out = shutil.ignore_patterns(*(name.removeprefix("**/") for name in ignored()[0] if name != "*"))

    def moved(text: str) -> str:
        for place, other in places.items():
            text = text.replace(place, other)
        return text

    for name, rest in steps():
        if name == "ENV":
            found = dict(word.split("=", 1) for word in moved(rest).split())
            environment |= {key: value.replace("$PATH", environment["PATH"]) for key, value in found.items()}
        elif name == "COPY" and not rest.startswith("--from"):
            what, where = rest.split()
            if (ROOT / what).is_dir():
                shutil.copytree(ROOT / what, source / where, ignore=left_out)
            else:
                shutil.copy(ROOT / what, source / where)
        elif name == "RUN" and not rest.startswith("useradd"):
            done = subprocess.run(
                ["/bin/sh", "-c", moved(rest)], cwd=source, env=environment, capture_output=True, text=True
            )
            assert done.returncode == 0, f"{rest}\n{done.stderr[-3000:]}"
    shutil.rmtree(source)
    return environment


def served(folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """Run the command as somebody who may write nothing but `/cache`."""
    program, *words = command()
    home = folder / "home"
    home.mkdir(mode=0o555)
    rights = rights_of_nobody(f"{folder}/specdec/bin/python")
    with (folder / "log").open("w+") as log:
        server = subprocess.Popen(
            [f"{folder}/specdec/bin/{program}", *words, "--port", "0"],
            env=environment | {"HOME": str(home)}, cwd=home, stderr=log, **rights,
        )  # fmt: skip
        try:
            yield wait_for(None, lambda: server.poll() is None, Path(log.name))
        finally:
            server.terminate()
            assert server.wait(timeout=60) in (0, -signal.SIGTERM), Path(log.name).read_text()


def rights_of_nobody(python: str) -> dict[str, Any]:
    """Return arguments of `Popen`; none where rights cannot be given up, or the interpreter is in a folder of root."""
    rights: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    try:
        subprocess.run([python, "-c", ""], check=True, **rights)
    except (PermissionError, subprocess.CalledProcessError):
        return {}
    return rights


def wait_for(url: str | None, is_alive: Any, log: Path | None = None) -> str:
    """Return the address of a server that has begun to serve, which a log tells if it is not known."""
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        text = "" if log is None else log.read_text()
        assert is_alive(), text
        if log is not None and (found := re.search(r"at http://0\.0\.0\.0:(\d+)", text)):
            url = f"http://127.0.0.1:{found[1]}"
        if url is not None:
            try:
                with urllib.request.urlopen(f"{url}/health", timeout=5):
                    return url
            except (urllib.error.URLError, ConnectionError):
                pass
        time.sleep(0.5)
    raise AssertionError(f"it does not serve\n{text}")
