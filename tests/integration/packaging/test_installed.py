"""The wheel, installed into empty venvs outside of the checkout, serves and asks."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[3]
ASK = (
    "import sys; from baton.client import Client\n"
    "with Client(sys.argv[1]) as client:\n"
    "    answer = client.chat('Hello', model='baton-tiny', temperature=0, max_tokens=8).answer()\n"
    "print(answer.usage.output_tokens, answer.text)\n"
)

pytestmark = pytest.mark.soak


class Venv:
    """An empty venv and what was installed into it."""

    def __init__(self, directory: Path, python: str = sys.executable) -> None:
        self.directory = directory
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("BATON_", "PYTHON", "SSL_"))
        } | {"XDG_STATE_HOME": str(directory / "state")}
        subprocess.run([python, "-m", "venv", str(directory)], check=True)

    def install(self, *requirements: str) -> None:
        pip = ["pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
        done = self.run([*pip, *requirements])
        assert done.returncode == 0, done.stderr[-2000:]

    def command(self, arguments: Sequence[str]) -> list[str]:
        program, *rest = arguments
        return [str(self.directory / "bin" / program), *rest]

    def run(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a program of the venv, outside of the checkout."""
        return subprocess.run(
            self.command(arguments),
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )


@pytest.fixture(scope="module")
def wheel(distributions: Path) -> str:
    (path,) = distributions.glob("*.whl")
    return str(path)


@pytest.fixture(scope="module")
def server(wheel: str, tmp_path_factory: pytest.TempPathFactory) -> Venv:
    venv = Venv(tmp_path_factory.mktemp("server"))
    venv.install(f"{wheel}[local]", "-c", str(ROOT / "constraints.txt"))
    return venv


@pytest.fixture(scope="module")
def oldest_client(wheel: str, tmp_path_factory: pytest.TempPathFactory) -> Venv:
    """The base install, with the oldest version of each dependency that its range allows."""
    venv = Venv(tmp_path_factory.mktemp("client"))
    venv.install("--no-deps", wheel)
    listed = venv.run(
        [
            "python",
            "-c",
            "import importlib.metadata as m; print(*m.requires('baton-serving'), sep='\\n')",
        ]
    )
    base = [each for each in map(Requirement, listed.stdout.splitlines()) if each.marker is None]
    oldest = [
        f"{each.name}=={one.version}"
        for each in base
        for one in each.specifier
        if one.operator == ">="
    ]
    assert len(oldest) == len(base)
    venv.install(wheel, *oldest)
    return venv


@pytest.fixture(scope="module")
def grpc(server: Venv) -> Iterator[str]:
    """Run `baton up` of the wheel; the address of its gRPC API."""
    command = server.command(["baton", "up", "--http-port", "0", "--grpc-port", "0"])
    with subprocess.Popen(
        command,
        cwd=server.directory,
        env=server.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as up:
        assert up.stdout is not None
        banner = ""
        for line in up.stdout:
            banner += line
            if "Ctrl-C" in line:
                break
        try:
            http = re.search(r"OpenAI +(\S+)", banner)
            grpc = re.search(r"gRPC +(\S+)", banner)
            assert http is not None, banner
            assert grpc is not None, banner
            models = httpx.get(f"{http.group(1)}/models").json()["data"]
            assert [model["id"] for model in models] == ["baton-tiny"]
            yield grpc.group(1)
        finally:
            up.send_signal(signal.SIGINT)
            up.communicate(timeout=60)
        assert up.returncode == 0


def test_the_demo_runs(server: Venv) -> None:
    done = server.run(["baton", "demo"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The code of Bruno is 4711." in done.stdout


def test_no_package_called_services_is_installed(server: Venv) -> None:
    done = server.run(["python", "-c", "import services"])
    assert "No module named 'services'" in done.stderr


def test_what_is_installed_fits_together(server: Venv) -> None:
    done = server.run(["pip", "check", "--disable-pip-version-check"])
    assert done.returncode == 0, done.stdout


def test_the_oldest_client_asks_the_cluster(oldest_client: Venv, server: Venv, grpc: str) -> None:
    oldest = oldest_client.run(["python", "-W", "error", "-c", ASK, grpc])
    newest = server.run(["python", "-W", "error", "-c", ASK, grpc])
    assert oldest.returncode == 0, oldest.stderr
    assert oldest.stdout.startswith("8 ")
    assert oldest.stdout == newest.stdout


def test_the_extra_cli_asks_from_the_command_line(
    wheel: str, grpc: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    venv = Venv(tmp_path_factory.mktemp("cli"))
    venv.install(f"{wheel}[cli]", "-c", str(ROOT / "constraints.txt"))
    models = venv.run(["baton", "models", "--address", grpc])
    answer = venv.run(["baton", "chat", "--address", grpc, "--max-tokens", "8", "Hello"])
    router = venv.run(["baton", "serve", "router"])
    assert models.returncode == 0, models.stderr
    assert "baton-tiny" in models.stdout
    assert (answer.returncode, bool(answer.stdout.strip())) == (0, True)
    assert router.returncode == 2
    assert "pip install 'baton-serving[server]'" in router.stderr


@pytest.mark.parametrize("name", ["python3.12", "python3.13", "python3.14"])
def test_the_client_runs_on_other_pythons(wheel: str, grpc: str, tmp_path: Path, name: str) -> None:
    python = shutil.which(name)
    if python is None or subprocess.run([python, "--version"], check=False).returncode:
        pytest.skip(f"there is no {name}")
    venv = Venv(tmp_path, python)
    venv.install(f"{wheel}[cli]", "-c", str(ROOT / "constraints.txt"))
    answer = venv.run(["python", "-W", "error", "-c", ASK, grpc])
    models = venv.run(["baton", "models", "--address", grpc])
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith("8 ")
    assert "baton-tiny" in models.stdout


def test_the_client_alone_says_what_a_cluster_needs(oldest_client: Venv) -> None:
    version = oldest_client.run(["baton", "version"])
    up = oldest_client.run(["baton", "up"])
    assert (version.returncode, up.returncode) == (0, 2)
    assert "pip install 'baton-serving[local]'" in up.stderr
