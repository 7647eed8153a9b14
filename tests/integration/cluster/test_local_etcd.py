"""The etcd that development and tests start."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from baton.cluster.etcd.local import LocalEtcd
from baton.settings import StartupError

ROOT = Path(__file__).parents[3]


async def test_port_in_use_is_a_sentence(etcd, tmp_path):
    port = int(etcd.endpoints[0].rpartition(":")[2])
    with pytest.raises(StartupError, match=f"{port}, which is in use"):
        await LocalEtcd(tmp_path / "second", client_port=port).start()


async def test_etcd_that_ends_at_once_is_reported_with_its_last_lines(tmp_path):
    (tmp_path / "data").write_text("in the way")
    with pytest.raises(StartupError, match=r"exited with code \d+.*(?s:.)*data"):
        await LocalEtcd(tmp_path).start()


async def test_stop_of_what_does_not_run_is_no_error(tmp_path):
    server = LocalEtcd(tmp_path / "etcd")
    await server.stop()
    await server.kill()
    assert server.pid is None


def test_it_dies_with_the_process_that_started_it(tmp_path):
    script = (
        "import asyncio, pathlib, sys\n"
        "from baton.cluster.etcd.local import LocalEtcd\n"
        "async def main():\n"
        "    server = LocalEtcd(pathlib.Path(sys.argv[1]))\n"
        "    await server.start()\n"
        "    print(server.pid, flush=True)\n"
        "    await server.wait()\n"
        "asyncio.run(main())\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "etcd")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        os.kill(pid, 0)
        parent.send_signal(signal.SIGKILL)
    with pytest.raises(ProcessLookupError):
        for _ in range(100):
            os.kill(pid, 0)
            time.sleep(0.02)
