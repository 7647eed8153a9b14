"""Runs `baton` as a person would, and looks at what it leaves behind."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from baton.cli.cluster.local.files.rundir import clear_ended
from baton.engine.testing.random_checkpoint import write_random_checkpoint
from tests.support.clock import PATIENCE_SECONDS, Stopwatch
from tests.support.processes.launcher import Launcher

_MAIN = "from baton.__main__ import main; main()"
START_SECONDS = 60.0
UP = "Press Ctrl-C to stop the cluster."
INSTANCES = 5
"""That `Starter` starts."""
GIVEN_UP = " exited 3 times"
BUILDER = "baton.cli.cluster.local.compiling.builder"


class Baton:
    """One `baton` process with its own run directory."""

    def __init__(
        self,
        directory: Path,
        arguments: list[str],
        variables: dict[str, str],
        launcher: Launcher,
    ) -> None:
        self.directory = directory
        self._launcher = launcher
        self.environment = environment(directory) | variables
        self._heard = 0
        self._whole: dict[int, str] = {}
        self._out = directory / "stdout"
        self._err = directory / "stderr"
        with self._out.open("w") as out, self._err.open("w") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _MAIN, *arguments],
                env=self.environment,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    @property
    def stdout(self) -> str:
        return self._out.read_text()

    @property
    def stderr(self) -> str:
        return self._err.read_text()

    def until_up(self) -> None:
        """Wait for the banner."""
        until(lambda: UP in self.stdout or self.process.poll() is not None, START_SECONDS)
        assert UP in self.stdout, self.stderr

    def line(self, name: str) -> str:
        """What the banner says after a name."""
        found = re.search(rf"^  {name} +(\S+)", self.stdout, re.MULTILINE)
        assert found is not None, self.stdout
        return found.group(1)

    def children(self) -> dict[int, str]:
        """Its processes' command lines, by pid; not that of a builder, which outlives it."""
        lines = {pid: command_line(pid) for pid in child_pids(self.process.pid)}
        return {pid: line for pid, line in lines.items() if BUILDER not in line}

    def child(self, instance_id: str) -> int | None:
        """The pid of one of its instances; None while it does not run."""
        for pid in child_pids(self.process.pid):
            try:
                variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if f"BATON_INSTANCE_ID={instance_id}".encode() in variables:
                return pid
        return None

    def begin_listening(self) -> None:
        """What it said before is of no interest."""
        self._heard = len(self.stderr)

    def heard(self) -> str:
        """What it said on standard error in this test."""
        return self.stderr[self._heard :]

    def says(self, text: str, seconds: float) -> bool:
        """Whether it says something on standard error, in this test, within so many seconds."""
        until(lambda: text in self.stderr[self._heard :], seconds)
        return text in self.stderr[self._heard :]

    def begin(self) -> bool:
        """Begin a test: return whether all its instances serve; what it said before was others'."""

        def serve() -> bool:
            status = self.call("status")
            return status.returncode == 0 and status.stdout.count(" SERVING") == INSTANCES

        if GIVEN_UP in self.stderr:
            return False
        if self.process.poll() is None and self._whole != self.children():
            until(serve, PATIENCE_SECONDS)
            self._whole = self.children() if serve() else {}
        self._heard = len(self.stderr)
        return self.process.poll() is None and bool(self._whole)

    def until(self, condition: Callable[[], bool], seconds: float) -> None:
        """Wait for a condition; the caller asserts it."""
        until(condition, seconds)

    def ends(self, seconds: float) -> int | None:
        """Its exit code, once it ended by itself; None if it still runs after so many seconds."""
        until(lambda: self.process.poll() is not None, seconds)
        return self.process.poll()

    def left(self, pids: dict[int, str], seconds: float) -> dict[int, str]:
        """Which of these processes still run after so many seconds at most."""
        until(lambda: not alive(pids), seconds)
        return alive(pids)

    def call(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Another `baton` command beside it, forked: to start Python anew takes a second of CPU."""
        command = ["-m", "baton", *arguments]
        env = self.environment | {"COLUMNS": "200"} | variables
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            process = self._launcher.launch(command, env, stdout=out, stderr=err)
            code = process.wait(60)
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(command, code, out.read(), err.read())

    def end(self) -> None:
        """Whatever happened: end it and what it started."""
        left = child_pids(self.process.pid)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        clear_ended(self.directory / "run" / "baton")


def environment(directory: Path) -> dict[str, str]:
    """Nothing of the caller's settings, small memory, own directories, compilers that fail."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BATON_")}
    (directory / "run").mkdir(exist_ok=True)
    (directory / "arena").mkdir(exist_ok=True)
    return {
        **clean,
        "XDG_RUNTIME_DIR": str(directory / "run"),
        "BATON_STORE_ARENA_DIR": str(directory / "arena"),
        "BATON_NATIVE_DIRECTORY": str(directory / "native"),
        "CC": "false",
        "CXX": "false",
        "BATON_STORE_ARENA_BYTES": "32MiB",
        "BATON_ENGINE_KV_BYTES": "16MiB",
        "BATON_ENGINE_SIM_TIME_SCALE": "0.2",
    }


def until(condition: Callable[[], bool], seconds: float) -> None:
    """Wait for a condition; the caller asserts it."""
    watch = Stopwatch()
    while not condition() and watch.remaining(seconds):
        time.sleep(0.05)


def child_pids(parent: int) -> list[int]:
    """Pids whose parent is this one, zombies aside."""
    found: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):  # it, or one of its threads, has ended
        for thread in Path(f"/proc/{parent}/task").iterdir():
            found += map(int, (thread / "children").read_text().split())
    return [pid for pid in found if command_line(pid)]


def command_line(pid: int) -> str:
    """Of a process; empty if it is gone, or a zombie."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def alive(pids: dict[int, str]) -> dict[int, str]:
    """Those of these processes that still run, by pid and command line."""
    return {pid: line for pid, line in pids.items() if line and command_line(pid) == line}


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_checkpoint(tmp_path_factory.mktemp("models") / "tiny")


class Starter:
    """Starts `baton`s, and ends them all."""

    def __init__(self, directory: Path, checkpoint: Path, launcher: Launcher) -> None:
        self._directory = directory
        self._launcher = launcher
        self._checkpoint = str(checkpoint)
        self._started: list[Baton] = []

    def __call__(
        self, command: str, *arguments: str, engine: str = "sim", **variables: str
    ) -> Baton:
        """Run `up` or `demo` on free ports with one worker of each kind."""
        common = ["--prefill", "1", "--decode", "1", "--engine", engine]
        if "--model" not in arguments:
            common += ["--model", self._checkpoint]
        ports = ["--http-port", "0", "--grpc-port", "0"] if command == "up" else []
        directory = self._directory / str(len(self._started))
        directory.mkdir()
        line = [command, *common, *ports, *arguments]
        self._started.append(Baton(directory, line, variables, self._launcher))
        return self._started[-1]

    def end(self) -> None:
        for each in self._started:
            each.end()


@pytest.fixture
def baton(tmp_path: Path, checkpoint: Path, launcher: Launcher) -> Iterator[Starter]:
    """Run `baton`."""
    starter = Starter(tmp_path, checkpoint, launcher)
    yield starter
    starter.end()


@pytest.fixture(scope="module")
def clusters(
    tmp_path_factory: pytest.TempPathFactory, checkpoint: Path, launcher: Launcher
) -> Iterator[Callable[..., Baton]]:
    """Returns a cluster that serves, whatever the test before has done to it.

    Not `whole`: one that runs, some of whose instances may be given up.
    """
    starter = Starter(tmp_path_factory.mktemp("cluster"), checkpoint, launcher)
    run: Baton | None = None

    def get(*, whole: bool = True) -> Baton:
        nonlocal run
        if run is None or not (run.begin() if whole else run.process.poll() is None):
            if run is not None:
                run.end()
            run = starter("up")
            run.until_up()
            assert run.begin(), run.stderr
        return run

    yield get
    starter.end()


@pytest.fixture
def cluster(clusters: Callable[..., Baton]) -> Baton:
    """A cluster that several tests share."""
    return clusters()
