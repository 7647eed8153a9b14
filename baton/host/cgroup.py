"""Limits of this process's cgroup: CPU time and memory. Linux only; other systems report no limit.

Reads cgroup v2, v1 and the hybrid of both (cgroups(7)). A limit of a group holds for those below
it. In a container the mount often shows the container's own group at its root while /proc names the
group by its path on the host: parents are checked up to the root of the mount.
"""

import math
import os
from collections.abc import Iterator
from pathlib import Path

_MOUNT = Path("/sys/fs/cgroup")
_GROUPS = Path("/proc/self/cgroup")
_UNLIMITED_BYTES = 1 << 60
"""cgroup v1 writes the largest multiple of a page for "no limit"."""


def cpu_quota(mount: Path = _MOUNT, groups: Path = _GROUPS) -> float | None:
    """Return how many CPUs' time this process gets, like 1.5; None: no quota is set."""
    quotas = []
    for directory in _directories(mount, groups, "cpu"):
        quota, period = _words(directory / "cpu.max", 2)
        if not quota:
            quota, *_ = _words(directory / "cpu.cfs_quota_us", 1)
            period, *_ = _words(directory / "cpu.cfs_period_us", 1)
        if quota.isdigit() and period.isdigit() and int(period):
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def memory_limit(mount: Path = _MOUNT, groups: Path = _GROUPS) -> int | None:
    """Return the bytes that this process and the others of its cgroup may use; None: no limit."""
    limits = []
    for directory in _directories(mount, groups, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            (limit,) = _words(directory / name, 1)
            if limit.isdigit() and int(limit) < _UNLIMITED_BYTES:
                limits.append(int(limit))
    return min(limits, default=None)


def usable_threads(wanted: int) -> int:
    """Return how many of the threads that a library would start can run at the same time.

    One per CPU of the quota: more would all be throttled for the rest of each period.
    """
    quota = cpu_quota()
    return wanted if quota is None else max(1, min(wanted, math.floor(quota)))


def usable_cores() -> int:
    """Return how many cores the calling thread may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _directories(mount: Path, groups: Path, controller: str) -> Iterator[Path]:
    """Yield the directories of this process's group and those above, of each hierarchy."""
    try:
        lines = groups.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            roots = [mount, mount / "unified"]
        elif controller in controllers.split(","):
            roots = [mount / controllers, mount / controller]
        else:
            continue
        group = Path(path.lstrip("/"))
        for root in roots:
            yield from (root / at for at in (group, *group.parents))


def _words(path: Path, count: int) -> list[str]:
    """Return the first words of a file; empty ones where there are none."""
    try:
        words = path.read_text().split()
    except OSError:
        words = []
    return [*words, *[""] * count][:count]
