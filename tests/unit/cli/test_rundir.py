"""Run directories: found while their run lives, removed when it is dead."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from baton.cli.local.rundir import LocalCluster, RunDirectory, running

CLUSTER = LocalCluster(("127.0.0.1:1",), "local", "127.0.0.1:2", "127.0.0.1:3")
_HOLD = """
import sys, time
from pathlib import Path
from baton.cli.local.rundir import LocalCluster, RunDirectory
with RunDirectory(Path(sys.argv[1])) as run:
    run.publish(LocalCluster(("127.0.0.1:1",), "local", "127.0.0.1:2", "127.0.0.1:3"))
    print(run.path, flush=True)
    time.sleep(60)
"""


def test_a_live_run_is_found_and_gone_afterwards(tmp_path: Path) -> None:
    assert running(tmp_path) is None
    with RunDirectory(tmp_path) as run:
        assert running(tmp_path) is None  # not published yet
        run.publish(CLUSTER)
        assert running(tmp_path) == CLUSTER
        assert run.logs.is_dir()
    assert running(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_the_newest_of_several_runs_is_found(tmp_path: Path) -> None:
    with RunDirectory(tmp_path) as first, RunDirectory(tmp_path) as second:
        first.publish(CLUSTER)
        newer = LocalCluster(("127.0.0.1:9",), "local", "127.0.0.1:8", "127.0.0.1:7")
        second.publish(newer)
        os.utime(first.path / "lock", (1, 1))
        assert running(tmp_path) == newer


def test_a_kept_directory_stays_until_the_next_run(tmp_path: Path) -> None:
    with RunDirectory(tmp_path) as run:
        run.publish(CLUSTER)
        run.keep()
    assert run.path.is_dir()
    assert running(tmp_path) is None
    with RunDirectory(tmp_path):
        assert not run.path.exists()


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
        assert running(tmp_path) == CLUSTER
        holder.send_signal(number)
        holder.wait(10)
    assert left.is_dir()
    with RunDirectory(tmp_path):
        assert not left.exists()
