"""Freed memory is used again without asking the kernel for its pages."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = """
import resource, sys
from baton.process.allocator import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

message = b"x" * 2**20
if sys.argv[1] == "keep":
    keep_freed_memory()
before = faults()
for _ in range(20):
    buffers = [bytearray(message) for _ in range(8)]
    buffers.clear()
print((faults() - before) / 160)
"""


def faults_per_mib(mode: str) -> float:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}
    answer = subprocess.run(
        [sys.executable, "-c", SCRIPT, mode],
        env={**clean, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return float(answer.stdout)


@pytest.mark.skipif(
    "glibc" not in os.confstr("CS_GNU_LIBC_VERSION"), reason="thresholds of glibc's allocator"
)
def test_messages_do_not_fault_their_pages_in_anew() -> None:
    assert faults_per_mib("default") > 100  # else there is nothing to do any more
    assert faults_per_mib("keep") < 30
