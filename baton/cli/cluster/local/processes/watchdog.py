"""Detects processes that exist without making progress: stopped, or hanging."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from baton.rpc.timing.loop_watch import LoopStopwatch

LOOK_SECONDS = 0.5
PROBE_SECONDS = 5.0
"""Time between two probes of /livez."""
HANGING_PARTS = 10
"""Multiple of the patience after which a process that answers no probe is considered hanging.
Longer, because on an overloaded machine processes are silent without being stopped."""

SILENT = "silent"
_HEALTHY = ""
Probe = Callable[[], Awaitable[str]]
"""Probes a process, as `livez` does."""


async def livez(ops_address: str, seconds: float) -> str:
    """Return why a process must be restarted, as it reports itself.

    Empty: it need not, or it cannot be reached. SILENT: it did not respond in time.
    """
    return await asyncio.to_thread(_get_livez, f"http://{ops_address}/livez", seconds)


def _get_livez(url: str, seconds: float) -> str:
    try:
        with urlopen(url, timeout=seconds):
            return _HEALTHY
    except HTTPError as failed:
        lines = failed.read(8192).decode(errors="replace").splitlines()
        return ", ".join(line.removeprefix("[-]") for line in lines if line.startswith("[-]"))
    except OSError as error:
        reason = getattr(error, "reason", error)
        return SILENT if isinstance(reason, TimeoutError) else _HEALTHY


async def frozen(pid: int, probe: Probe, patience: float) -> str:
    """Return once a process is stopped or hangs, with the reason as the predicate of a sentence.

    Time in which this process itself did not run does not count.

    Args:
        pid: the process, of this machine.
        probe: probes it.
        patience: seconds for which it may be stopped.
    """
    stopped: LoopStopwatch | None = None
    silent: LoopStopwatch | None = None
    probed = LoopStopwatch()
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        stopped = (stopped or LoopStopwatch()) if is_stopped(pid) else None
        if stopped is not None and stopped.seconds >= patience:
            return f"has been stopped for {patience:g} s"
        if probed.seconds < PROBE_SECONDS and silent is None:
            continue
        probed = LoopStopwatch()
        asked = silent or LoopStopwatch()
        found = await probe()
        if found not in (_HEALTHY, SILENT):
            return f"is not alive ({found})"
        silent = asked if found == SILENT else None
        if silent is not None and silent.seconds >= HANGING_PARTS * patience:
            return f"has not responded for {HANGING_PARTS * patience:g} s"


def is_stopped(pid: int) -> bool:
    """Return whether a signal has stopped a process, except by a debugger. False: unknown.

    Only Linux provides this.
    """
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state == "T"
