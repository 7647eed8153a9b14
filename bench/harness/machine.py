"""Description of this machine, and resource use of processes."""

import os
import platform
from pathlib import Path

_FLAGS = ("amx_bf16", "amx_int8", "avx512_bf16", "avx512f", "avx2")
"""Instruction sets that affect the speed of engines and digests, fastest first."""
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def processor() -> str:
    """Return the processor's name, its cores, and its wide instruction sets."""
    found: dict[str, str] = {}
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            found.setdefault(key.strip(), value.strip())
    except OSError:
        pass
    name = found.get("model name") or platform.processor() or platform.machine()
    flags = set(found.get("flags", "").split())
    sets = [flag for flag in _FLAGS if flag in flags]
    cores = len(os.sched_getaffinity(0))
    return f"{name}, {cores} cores, {' '.join(sets) or 'no AVX2, no AMX'}"


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds that a process has used, user and system, over all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def exact_cpu_seconds(pid: int) -> float:
    """Return what `cpu_seconds` does, in nanoseconds' resolution, of threads that still run."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def rss_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


def memory_bytes(pid: int) -> dict[str, int]:
    """Return the memory of a process: `rss`, resident; `uss`, not shared; `pss`, its share."""
    kib = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, _, value = line.partition(":")
        kib[name] = int(value.split()[0]) * 1024
    alone = kib["Private_Clean"] + kib["Private_Dirty"]
    return {"rss": kib["Rss"], "uss": alone, "pss": kib["Pss"]}
