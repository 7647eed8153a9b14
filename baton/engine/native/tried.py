"""Decide whether a library may be used on this machine, by trying it in a separate process."""

import platform
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

from baton.compiled.files import directory

_SECONDS = 120


@cache
def refusal(library: Path) -> str:
    """Return why a library must not be used on this machine, in words; empty: it may be used.

    Takes seconds. The result is stored next to the libraries, for this processor and kernel.
    """
    machine = _machine()
    kept = directory() / f"{library.stem}.tried"
    before, _, found = kept.read_text().partition("\n") if kept.exists() else ("", "", "")
    if before == machine:
        return found
    found = _try(library)
    with suppress(OSError):  # an image's directory is read-only: each process tries it
        kept.write_text(f"{machine}\n{found}")
    return found


def _try(library: Path) -> str:
    command = [sys.executable, "-P", "-m", "baton.engine.native.trial", str(library)]
    try:
        ended = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"its test run did not finish within {_SECONDS} s"
    if ended.returncode < 0:
        return f"its test run was killed by signal {-ended.returncode}"
    if ended.returncode:
        return (ended.stderr.strip().splitlines() or ["its test run failed"])[-1]
    return ""


def _machine() -> str:
    """Return the properties on which a trial's result depends, in a line."""
    wanted = ("vendor_id", "cpu family", "model", "model name", "stepping", "microcode")
    try:
        lines = Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines()
    except OSError:
        lines = []
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    known = {name.strip(): value.strip() for name, value in fields.items()}
    return " ".join((platform.release(), *(known.get(name, "?") for name in wanted)))
