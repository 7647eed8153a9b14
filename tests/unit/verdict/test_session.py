"""How runs of the tests end: with everything that a test has started."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from scripts.verdict import session

ROOT = Path(__file__).parents[3]
IN_SESSIONS = "setsid sleep 1000 & (setsid sh -c 'kill -STOP $$' &); echo started"
"""A process in a session of its own, and an orphan there that is stopped. Both hold the output."""
DEAF = "trap '' TERM; setsid sleep 1000 & echo started; wait"
RUN = """
import os, signal, sys
from pathlib import Path
from scripts.verdict.kinds import Around, run
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
run(["plain"], ["sh", "-c", sys.argv[1]], Around(Path.cwd(), Path("/dev/stdout"), 1), os.environ)
"""
IMPATIENT = """
import sys
from scripts.verdict import session
session.STOP_SECONDS = 0.1
sys.exit(session._main(int(sys.argv[1]), sys.argv[2:]))
"""


@pytest.fixture
def pipe() -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """The output of processes, which ends once the last of them has ended."""
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as output, os.fdopen(writer, "wb") as out:
        yield output, out


def test_what_a_command_leaves_ends_with_it(pipe: tuple[IO[bytes], IO[bytes]]) -> None:
    output, out = pipe
    one = session.start(["sh", "-c", f"{IN_SESSIONS}; exit 7"], ROOT, out, os.environ)
    out.close()
    assert output.read() == b"started\n"
    assert one.wait() == 7


def test_a_signal_ends_all(pipe: tuple[IO[bytes], IO[bytes]]) -> None:
    output, out = pipe
    one = session.start(["sh", "-c", f"{IN_SESSIONS}; wait"], ROOT, out, os.environ)
    out.close()
    assert output.readline() == b"started\n"
    session.end(one)
    assert output.read() == b""
    assert one.returncode == 128 + signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_all_ends_with_the_verdict(number: signal.Signals) -> None:
    command = [sys.executable, "-c", RUN, f"{IN_SESSIONS}; wait"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as verdict:
        assert verdict.stdout is not None
        assert verdict.stdout.readline() == b"started\n"
        verdict.send_signal(number)
        assert verdict.stdout.read() == b""
    assert verdict.returncode == (3 if number == signal.SIGTERM else -number)


def test_what_ignores_the_signal_is_killed() -> None:
    command = [sys.executable, "-c", IMPATIENT, str(os.getpid()), "sh", "-c", DEAF]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as one:
        assert one.stdout is not None
        assert one.stdout.readline() == b"started\n"
        one.terminate()
        assert one.stdout.read() == b""
    assert one.returncode == 128 + signal.SIGTERM
