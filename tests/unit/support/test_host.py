"""Tests get nothing of the host's: neither variables nor directories, they or what they start."""

import os
import signal
import tempfile
import time
from pathlib import Path

import pytest

from baton.cli.cluster.local.files.rundir import base_directory
from tests.support.processes.launcher import Launcher
from tests.support.runs.host import ROOT, hear_signals, isolate

SHOW = "import os, tempfile; print(os.environ['HOME'], tempfile.gettempdir(), os.environ['TZ'])"
HOSTILE = {
    "BATON_ETCD_ENDPOINTS": "10.0.0.1:2379",
    "BATON_NATIVE_VARIANT": "portable",
    "CI": "true",
    "COLUMNS": "20",
    "HOME": "/home/someone",
    "LANG": "tr_TR.UTF-8",
    "LC_ALL": "de_DE",
    "PATH": "/bin",
    "PGHOST": "database",
    "TEMP": "/elsewhere",
    "TMPDIR": "/full",
    "TZ": "Asia/Kathmandu",
    "XDG_RUNTIME_DIR": "/run/user/1000",
    "XDG_STATE_HOME": "/home/someone/state",
    "no_proxy": "intranet",
}


def test_what_a_shell_says_does_not_reach_tests(tmp_path: Path) -> None:
    environ = dict(HOSTILE)
    isolate(environ, tmp_path / "host")
    local = "127.0.0.1,localhost,::1"
    assert environ == {
        "BATON_NATIVE_VARIANT": "portable",
        "CI": "true",
        "HOME": str(tmp_path / "host" / "home"),
        "LANG": "C.UTF-8",
        "NO_PROXY": local,
        "PATH": "/bin",
        "PIP_CACHE_DIR": "/home/someone/.cache/pip",
        "TMPDIR": str(tmp_path / "host" / "tmp"),
        "TZ": "UTC",
        "VLLM_CACHE_ROOT": str(ROOT / "build" / "vllm"),
        "XDG_RUNTIME_DIR": str(tmp_path / "host" / "run"),
        "no_proxy": f"intranet,{local}",
    }
    assert all(Path(environ[name]).is_dir() for name in ("HOME", "TMPDIR", "XDG_RUNTIME_DIR"))


def test_a_run_chooses_a_time_zone_and_a_locale(tmp_path: Path) -> None:
    environ = {"TESTS_TZ": "Asia/Kathmandu", "TESTS_LANG": "C", "TZ": "UTC"}
    isolate(environ, tmp_path / "host")
    assert (environ["TZ"], environ["LANG"]) == ("Asia/Kathmandu", "C")


def test_this_process_has_its_own_directories(tmp_path_factory: pytest.TempPathFactory) -> None:
    own = tmp_path_factory.getbasetemp()
    assert Path(tempfile.gettempdir()).is_relative_to(own)
    assert Path.home().is_relative_to(own)
    assert base_directory().is_relative_to(own), "a cluster of this user's would be found"
    assert "TESTS_TZ" in os.environ or time.tzname == ("UTC", "UTC")


def test_signals_that_the_shell_ignores_are_not_ignored() -> None:
    ignored = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
    before = [signal.signal(number, signal.SIG_IGN) for number in ignored]
    try:
        hear_signals()
        assert signal.SIG_IGN not in map(signal.getsignal, ignored)
    finally:
        for number, handler in zip(ignored, before, strict=True):
            signal.signal(number, handler)


async def test_processes_of_tests_have_them_too_whatever_they_are_given(
    launcher: Launcher,
) -> None:
    code, out, err = await launcher.run(["-c", SHOW], {"PATH": os.environ["PATH"]})
    assert code == 0, err
    assert out.split() == [str(Path.home()), tempfile.gettempdir(), os.environ["TZ"]]
