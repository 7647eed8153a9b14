"""Limits of a cgroup, as v1, v2 and the hybrid of both write them."""

from pathlib import Path

import pytest

from baton.host import cgroup
from baton.host.cgroup import cpu_quota, memory_limit, usable_threads

MIB = 1024 * 1024


@pytest.fixture
def machine(tmp_path: Path):
    """Writes the files of a machine: limits by path below the mount, and /proc/self/cgroup."""

    def write(groups: str, **files: str) -> tuple[Path, Path]:
        mount = tmp_path / "cgroup"
        for name, text in files.items():
            path = mount / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")
        proc = tmp_path / "self"
        proc.write_text(groups)
        return mount, proc

    return write


V1 = "4:memory:/pod/a\n1:cpu,cpuacct:/pod/a\n0::/\n"


@pytest.mark.parametrize(
    ("groups", "files", "cpus", "memory"),
    [
        pytest.param("0::/\n", {}, None, None, id="nothing is limited"),
        pytest.param(
            "0::/\n",
            {"cpu.max": "150000 100000", "memory.max": "1073741824"},
            1.5,
            1024 * MIB,
            id="v2 in a container",
        ),
        pytest.param(
            "0::/\n", {"cpu.max": "max 100000", "memory.max": "max"}, None, None, id="v2 unlimited"
        ),
        pytest.param(
            "0::/pod/a\n",
            {
                "pod/cpu.max": "100000 100000",
                "pod/a/cpu.max": "400000 100000",
                "pod/a/memory.max": "4194304",
                "pod/memory.max": "8388608",
            },
            1.0,
            4 * MIB,
            id="v2, the least of the group and those above",
        ),
        pytest.param(
            "0::/host/path/of/the/container\n",
            {"cpu.max": "200000 100000"},
            2.0,
            None,
            id="v2, the mount shows the container only",
        ),
        pytest.param(
            V1,
            {
                "cpu,cpuacct/pod/a/cpu.cfs_quota_us": "250000",
                "cpu,cpuacct/pod/a/cpu.cfs_period_us": "100000",
                "memory/pod/a/memory.limit_in_bytes": "2097152",
                "memory/memory.limit_in_bytes": "9223372036854771712",
            },
            2.5,
            2 * MIB,
            id="v1",
        ),
        pytest.param(
            V1,
            {
                "cpu/cpu.cfs_quota_us": "-1",
                "cpu/cpu.cfs_period_us": "100000",
                "memory/memory.limit_in_bytes": "9223372036854771712",
            },
            None,
            None,
            id="v1 unlimited",
        ),
        pytest.param(
            "1:cpu:/pod\n0::/pod\n",
            {"unified/pod/memory.max": "1048576", "cpu/cpu.cfs_quota_us": "50000"}
            | {"cpu/cpu.cfs_period_us": "100000"},
            0.5,
            1 * MIB,
            id="hybrid",
        ),
    ],
)
def test_limits_are_found(machine, groups, files, cpus, memory):
    at = machine(groups, **files)
    assert cpu_quota(*at) == cpus
    assert memory_limit(*at) == memory


def test_where_there_are_no_cgroups_nothing_is_limited(tmp_path):
    assert cpu_quota(tmp_path, tmp_path / "self") is None
    assert memory_limit(tmp_path, tmp_path / "self") is None


@pytest.mark.parametrize(("quota", "threads"), [(None, 8), (0.5, 1), (1.5, 1), (3.0, 3), (16.0, 8)])
def test_threads_follow_the_quota(monkeypatch, quota, threads):
    monkeypatch.setattr(cgroup, "cpu_quota", lambda: quota)
    assert usable_threads(8) == threads
