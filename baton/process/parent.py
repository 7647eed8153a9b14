"""Ends a process when the supervisor that started it dies, however it dies."""

import ctypes
import os
import signal
import sys

PARENT_ENV = "BATON_PARENT_PID"
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent() -> None:
    """Ask the kernel for SIGTERM when the parent dies, if the parent requests that.

    The parent does by setting BATON_PARENT_PID to its pid. The signal is sent when the *thread*
    that started this process ends: start processes from a thread that lives as long as the parent.
    Exit immediately if the parent is already dead.
    """
    parent = os.environ.get(PARENT_ENV, "")
    if not parent or sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    # The parent may have died before the kernel processed the request.
    if str(os.getppid()) != parent:
        sys.exit(0)
