"""Threads of the compiled operators, with the compiler's own check of races."""

import shutil
import subprocess
from pathlib import Path

import pytest

from baton.engine.native.build import SOURCE

PROGRAM = Path(__file__).with_name("thread_pool.cpp")
CHECK_RACES = "-fsanitize=thread"
FLAGS = ("-std=c++20", "-O1", "-g", "-pthread", f"-I{SOURCE}")


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_a_call_does_each_task_once_and_waits_for_no_helper_without_a_core(tmp_path: Path) -> None:
    empty, binary = tmp_path / "empty.cpp", tmp_path / "thread_pool"
    empty.write_text("int main() {}")
    # Some compilers come without what the check needs at run time.
    probe = subprocess.run(
        ["c++", CHECK_RACES, empty, "-o", binary], capture_output=True, check=False
    )
    check = () if probe.returncode else (CHECK_RACES,)
    subprocess.run(["c++", *FLAGS, *check, PROGRAM, "-o", binary], check=True)
    ran = subprocess.run([binary], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, f"line {ran.returncode} of {PROGRAM.name}: {ran.stderr}"
