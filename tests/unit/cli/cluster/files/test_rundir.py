"""Run directories: found while their run lives, removed when it is dead."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from baton.cli.cluster.local.files.local_clusters import LocalCluster, running_clusters
from baton.cli.cluster.local.files.rundir import KEPT_BYTES, KEPT_RUNS, RunDirectory

CLUSTER = LocalCluster(("127.0.0.1:1",), "local", "127.0.0.1:2", "127.0.0.1:3")
_HOLD = """
import sys, time
from pathlib import Path
from baton.cli.cluster.local.files.local_clusters import LocalCluster
from baton.cli.cluster.local.files.rundir import RunDirectory
with RunDirectory(Path(sys.argv[1])) as run:
    run.publish(LocalCluster(("127.0.0.1:1",), "local", "127.0.0.1:2", "127.0.0.1:3"))
    print(run.path, flush=True)
    time.sleep(60)
"""


def test_a_live_run_is_found_and_gone_afterwards(tmp_path: Path) -> None:
    assert running_clusters(tmp_path) == []
    with RunDirectory(tmp_path) as run:
        assert running_clusters(tmp_path) == []  # not published yet
        run.publish(CLUSTER)
        assert running_clusters(tmp_path) == [CLUSTER]
        assert run.logs.is_dir()
    assert running_clusters(tmp_path) == []
    assert list(tmp_path.iterdir()) == []  # nothing was logged


def test_all_that_run_are_found_by_name(tmp_path: Path) -> None:
    with RunDirectory(tmp_path) as first, RunDirectory(tmp_path) as second:
        first.publish(CLUSTER)
        other = LocalCluster(("127.0.0.1:9",), "another", "127.0.0.1:8", "127.0.0.1:7")
        second.publish(other)
        assert running_clusters(tmp_path) == [other, CLUSTER]
    assert running_clusters(tmp_path) == []


def test_of_an_ended_run_the_logs_stay_and_nothing_else(tmp_path: Path) -> None:
    run = ended(tmp_path, "it served", 1)
    assert [path.relative_to(run) for path in files(run)] == [Path("logs/etcd.log")]
    assert (run / "logs" / "etcd.log").read_text() == "it served"
    assert [path.name for path in run.iterdir()] == ["logs"]
    assert running_clusters(tmp_path) == []
    with RunDirectory(tmp_path):
        assert files(run)


def test_a_run_that_started_nothing_leaves_nothing(tmp_path: Path) -> None:
    with RunDirectory(tmp_path) as run:
        run.supervisor_log.write_text("etcd is unavailable")
    assert list(tmp_path.iterdir()) == []


def test_logs_of_the_last_runs_stay(tmp_path: Path) -> None:
    runs = [ended(tmp_path, "x", moment) for moment in range(1, KEPT_RUNS + 3)]
    assert [run.exists() for run in runs] == [False] * 2 + [True] * KEPT_RUNS


def test_logs_are_bounded_in_size_and_the_last_ones_stay_however_long(tmp_path: Path) -> None:
    small, large, last = (ended(tmp_path, "x", moment) for moment in (1, 2, 3))
    with (large / "logs" / "etcd.log").open("ab") as log:
        log.truncate(KEPT_BYTES)
    os.utime(large / "logs" / "etcd.log", (2, 2))
    with RunDirectory(tmp_path):
        assert [run.exists() for run in (small, large, last)] == [False, False, True]
    with (last / "logs" / "etcd.log").open("ab") as log:
        log.truncate(2 * KEPT_BYTES)
    with RunDirectory(tmp_path):
        assert last.exists()


def ended(base: Path, text: str, moment: int) -> Path:
    """The directory of a run that has ended, whose log was written at a moment."""
    with RunDirectory(base) as run:
        run.publish(CLUSTER)
        run.etcd_data.mkdir()
        (run.etcd_data / "member").write_text("data")
        (run.logs / "etcd.log").write_text(text)
        os.utime(run.logs / "etcd.log", (moment, moment))
    return run.path


def files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


@pytest.mark.parametrize("number", [signal.SIGKILL])
def test_what_a_killed_run_left_is_removed_by_the_next(
    tmp_path: Path, number: signal.Signals
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        left = Path(holder.stdout.readline().strip())
        with RunDirectory(tmp_path):
            assert left.is_dir()  # it lives: not ours to remove
        assert running_clusters(tmp_path) == [CLUSTER]
        holder.send_signal(number)
        holder.wait(10)
    assert left.is_dir()
    with RunDirectory(tmp_path):
        assert not left.exists()
