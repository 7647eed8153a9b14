"""`baton serve PROCESS`: be one process of a cluster."""

import gc
import os
import runpy
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

from baton.host.bundled import root

PROCESSES = ("frontend", "router", "prefill", "decode", "kvstore", "picker")
USAGE = f"""usage: baton serve PROCESS [--SETTING VALUE ...]

Run one process of a cluster until it receives a signal. PROCESS is one of
{", ".join(PROCESSES)}.
`baton serve PROCESS --help` lists its settings.
"""
EXIT_USAGE = 2
_GARBAGE_THRESHOLD = 200_000
"""Objects made and not freed, before the collector looks at them; until the process has started."""


def main(arguments: Sequence[str]) -> NoReturn:
    """Run a process to its end, as the program that this interpreter runs.

    Args:
        arguments: the process's name, then its flags.
    """
    name, *flags = arguments or ("",)
    if name in ("-h", "--help"):
        sys.stdout.write(USAGE)
        sys.exit()
    if name not in PROCESSES:
        wrong = f"unknown process {name!r}" if name else "PROCESS is missing"
        sys.stderr.write(f"baton serve: {wrong}: choose one of {', '.join(PROCESSES)}.\n")
        sys.exit(EXIT_USAGE)
    # The first process of a container has no default for SIGTERM: one that comes while modules are
    # imported would be lost.
    signal.signal(signal.SIGTERM, _end)
    # Nothing that an import makes is garbage; looking for some would be a tenth of the start.
    gc.set_threshold(_GARBAGE_THRESHOLD)
    # First: another package called `services` may be installed.
    sys.path.insert(0, str(root()))
    sys.argv = [f"baton serve {name}", *flags]
    runpy.run_module(f"services.{name}", run_name="__main__", alter_sys=True)
    sys.exit()


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    """End at once: nothing has begun, and what is being imported need not end first."""
    os._exit(0)
