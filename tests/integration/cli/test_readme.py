"""The Python in the README runs as it stands there, as a file and typed into an interpreter."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.xdist_group("supervisor")

README = Path(__file__).parents[3] / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)


def test_the_blocks_are_found() -> None:
    assert len(BLOCKS) == 2
    assert any("baton.client" in block for block in BLOCKS)
    assert any("openai" in block for block in BLOCKS)


def test_each_block_runs(baton: Callable[..., Any]) -> None:
    run = baton("up", "--model-name", "baton-tiny")
    run.until_up()
    ports = {
        "127.0.0.1:50051": run.line("gRPC"),
        "http://127.0.0.1:8000/v1": run.line("OpenAI"),
    }
    for block in BLOCKS:
        code = block
        for written, here in ports.items():
            code = code.replace(written, here)
        assert code != block
        done = python("-c", code)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip()
        typed = python("-i", "-q", stdin=f"{code}\n")
        assert "Error" not in typed.stderr
        assert typed.stdout.strip()


def python(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """A fresh interpreter."""
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=60, check=False
    )
