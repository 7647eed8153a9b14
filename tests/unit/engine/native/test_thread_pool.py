"""Threads of the compiled operators, with the compiler's own check of races."""

import shutil
import subprocess
from pathlib import Path

import pytest

from baton.engine.native.build import SOURCE

PROGRAM = Path(__file__).with_name("thread_pool.cpp")


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_a_call_does_each_task_once_and_waits_for_no_helper_without_a_core(tmp_path: Path) -> None:
    binary = tmp_path / "thread_pool"
    flags = ("-std=c++20", "-O1", "-g", "-pthread", "-fsanitize=thread", f"-I{SOURCE}")
    subprocess.run(["c++", *flags, PROGRAM, "-o", binary], check=True)
    ran = subprocess.run([binary], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, f"line {ran.returncode} of {PROGRAM.name}: {ran.stderr}"
