"""A test that hangs fails with what it waits for, and keeps nothing from the others."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.clock import DEADLINE_SECONDS
from tests.support.processes.launcher import ROOT

CONFTEST = """
from tests.support import clock
from tests.support.runs.hung_tests import HungTests

clock.LIMIT_SECONDS = 1.0  # a busy machine makes a hang last for up to that

def pytest_configure(config):
    config.pluginmanager.register(HungTests())
"""
TESTS = """
import asyncio
import time

import pytest

async def never():
    await asyncio.Event().wait()

async def test_one_that_awaits():
    await never()

def test_a_fixture_behind_a_failure(request):
    request.addfinalizer(lambda: time.sleep(60))
    assert False, "as it should"

async def test_a_callback_that_lets_no_exception_through():
    asyncio.get_running_loop().call_soon(time.sleep, 60)
    await never()

def test_another():
    pass

def test_one_that_is_never_done():
    while True:
        try:
            time.sleep(60)
        except BaseException:
            pass
"""


def test_each_hang_is_a_failure_that_says_where(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_hanging.py").write_text(TESTS)
    plugins = ["-p", "pytest_timeout", "-p", "pytest_asyncio.plugin", "-p", "no:cacheprovider"]
    options = ["-v", "--timeout", "0.4", "--asyncio-mode", "auto", *plugins]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        cwd=tmp_path,
    )
    ends = re.findall(r"^test_hanging.py::\w+ ([A-Z]+)", done.stdout, re.MULTILINE)
    assert ends == ["FAILED", "FAILED", "ERROR", "FAILED", "PASSED"], done.stdout
    assert "It does not end: its process is ended." in done.stderr
