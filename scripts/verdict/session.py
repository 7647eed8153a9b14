"""Run a command in its own session, and end all that it leaves: `session.py PARENT COMMAND...`.

Tests start sessions too, such as those of `baton up`, which pytest does not end when a signal ends
it. Orphans among the descendants of this process become its children, so that it finds all of them
when the command ends, at a signal, and when its parent dies.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

STOP_SECONDS = 30.0
"""Time to end after SIGTERM; then processes are killed."""
_LOOK_SECONDS = 0.05
_ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h


def start(
    command: Sequence[str], directory: Path, out: IO[bytes], environment: Mapping[str, str]
) -> "subprocess.Popen[bytes]":
    """Start a command in a session, whose exit code is the command's.

    The thread that calls this must live as long as the session.
    """
    return subprocess.Popen(
        [sys.executable, "-I", str(Path(__file__).resolve()), str(os.getpid()), *command],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=out,
        start_new_session=True,
    )


def end(session: "subprocess.Popen[bytes]") -> None:
    """End a session, and wait until all its processes have ended."""
    if session.poll() is None:
        session.terminate()
        session.wait()


def descendants(root: int) -> list[int]:
    """Return the pids of all descendants of a process, parents first; zombies aside."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                children.setdefault(int(parent), []).append(int(path.parent.name))
    found = list(children.get(root, ()))
    for pid in found:
        found += children.get(pid, ())
    return found


def _main(parent: int, command: Sequence[str]) -> int:
    # Signals wait until they are asked for, so that none interrupts the end of the processes.
    signal.pthread_sigmask(signal.SIG_BLOCK, (*_ENDS, signal.SIGCHLD))
    libc = ctypes.CDLL(None, use_errno=True)
    for option, value in ((_PR_SET_CHILD_SUBREAPER, 1), (_PR_SET_PDEATHSIG, signal.SIGTERM)):
        if libc.prctl(option, value, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != parent:  # it died before
        return 128 + signal.SIGTERM
    child = os.posix_spawnp(command[0], list(command), os.environ, setsigmask=())
    code: int | None = None
    while code is None:
        number = signal.sigwait((*_ENDS, signal.SIGCHLD))
        code = _reap().get(child) if number == signal.SIGCHLD else 128 + number
    _end_descendants()
    return code


def _reap() -> dict[int, int]:
    """Return the exit codes of the children that have ended, by pid."""
    codes: dict[int, int] = {}
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            code = os.waitstatus_to_exitcode(ended[1])
            codes[ended[0]] = code if code >= 0 else 128 - code
    return codes


def _end_descendants() -> None:
    told: set[tuple[int, int]] = set()
    began = time.monotonic()
    while left := descendants(os.getpid()):
        late = time.monotonic() - began > STOP_SECONDS
        number = signal.SIGKILL if late else signal.SIGTERM
        for pid in left:
            if (pid, number) not in told:
                told.add((pid, number))
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
                    os.kill(pid, signal.SIGCONT)  # a test may have stopped it
        time.sleep(_LOOK_SECONDS)
        _reap()


if __name__ == "__main__":
    sys.exit(_main(int(sys.argv[1]), sys.argv[2:]))
