"""Every command of the documents runs, against the cluster that docs/running.md starts by hand.

A block of `sh` or `python` whose info string says `norun` is passed over. Python runs as a file,
and typed into an interpreter.
"""

import os
import re
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from baton.host.ports import held_port

ROOT = Path(__file__).parents[3]
DOCUMENTS = (
    "docs/running.md",
    "README.md",
    *sorted(
        path.relative_to(ROOT).as_posix()
        for path in ROOT.glob("docs/*.md")
        if path.name not in ("running.md",)
    ),
)
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PORTS = re.compile(r"\b(2379|2380|8000|50051|910[1-5])\b")
SECONDS = 240.0
"""A bound for machines that are busy: it takes 17 s."""


def blocks() -> list[tuple[str, str, str]]:
    """Return every block that runs: where it stands, its language, its text."""
    found = []
    for name in DOCUMENTS:
        text = (ROOT / name).read_text()
        for match in BLOCK.finditer(text):
            line = text[: match.start()].count("\n") + 1
            found.append((f"{name}:{line}", match[1], match[2]))
    return found


def script(directory: Path, ports: "FreePorts") -> str:
    """Return one shell script of all blocks; it says on standard output which one it is at."""
    lines = ["set -euo pipefail", f"cd {ROOT}"]
    for number, (place, language, text) in enumerate(blocks()):
        lines.append(f"echo '### {place}'")
        if language == "python":
            file = directory / f"block-{number}.py"
            file.write_text(ports.put_in(text))
            lines.append(f"python {file}")
            lines.append(f"if python -i -q < {file} 2>&1 | grep -B9 Error; then exit 1; fi")
        else:
            lines.append(ports.put_in(text))
    return "\n".join(lines)


class FreePorts:
    """Free ports in the place of those that the documents name, kept until the stack is left."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._ports: dict[str, int] = {}

    def put_in(self, text: str) -> str:
        return PORTS.sub(lambda match: str(self._port(match[0])), text)

    def _port(self, name: str) -> int:
        if name not in self._ports:
            self._ports[name] = self._stack.enter_context(held_port())
        return self._ports[name]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    programs = tmp_path / "bin"
    programs.mkdir()
    etcd = Path(sys.executable).with_name("etcd")
    commands = {"baton": f"{sys.executable} -m baton", "python": sys.executable, "etcd": str(etcd)}
    for name, command in commands.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (programs / name).chmod(0o755)
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("BATON_")}
    return {
        **inherited,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(tmp_path),
        "BATON_ENGINE_KIND": "sim",
        "BATON_ENGINE_SIM_TIME_SCALE": "0",
        "BATON_STORE_ARENA_DIR": str(tmp_path),
    }


@pytest.mark.timeout(300)
def test_every_command_runs(tmp_path: Path, environment: dict[str, str]) -> None:
    with (tmp_path / "said").open("w+") as said, ExitStack() as stack:
        shell = subprocess.Popen(
            ["bash", "-c", script(tmp_path, FreePorts(stack))],
            env=environment,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = shell.wait(SECONDS)
        finally:
            os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
        said.seek(0)
        assert code == 0, said.read()[-4000:]
