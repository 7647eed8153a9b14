"""A process takes as many sockets as it is allowed, whatever it was started with."""

import subprocess
import sys

PROGRAM = """
import resource
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
from baton.process.open_files import take_all_open_files
print(take_all_open_files() == min(hard, 1 << 20) == resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def test_the_soft_limit_becomes_the_hard_one() -> None:
    # In a process of its own: a limit is a process's.
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "True\n"
