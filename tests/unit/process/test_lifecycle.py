"""The life of real processes: how they start, stop, and die."""

import fcntl
import json
import os
import signal
import socket
import termios
import time
import urllib.request
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import httpx
import pytest

from baton.host.ports import held_port
from baton.process.signals import SAME_SIGNAL_SECONDS
from tests.support.clock import DEADLINE_SECONDS, Stopwatch
from tests.support.processes.launcher import Launcher
from tests.support.wait import eventually_blocking

SCRIPT = Path(__file__).parent / "service_under_test.py"


class Running:
    """The service under test, as a process whose output goes into two pipes."""

    def __init__(self, launcher: Launcher, behave: str, flags: Sequence[str], **env: str) -> None:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("BATON_")}
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        self.process = launcher.launch(
            [str(SCRIPT), *flags],
            {**clean, "BEHAVE": behave, **env},
            stdout=out_end,
            stderr=err_end,
        )
        os.close(out_end)
        os.close(err_end)
        self.out, self.err = os.fdopen(out), os.fdopen(err)

    def line(self) -> str:
        return self.out.readline().rstrip()

    def end(self, *numbers: signal.Signals, timeout: float = 20) -> tuple[int, list[str], str]:
        """Exit code, lines of standard output not read yet, and standard error."""
        for number in numbers:
            self.process.send_signal(number)
        out, err = self.out.read(), self.err.read()
        return self.process.wait(timeout), out.splitlines(), err

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.out.close()
        self.err.close()


@pytest.fixture
def run(launcher: Launcher):
    started: list[Running] = []

    def start(behave: str = "", *flags: str, **env: str) -> Running:
        started.append(Running(launcher, behave, flags, **env))
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_drains_then_closes_parts_in_reverse_and_exits_0(run, number):
    service = run()
    assert service.line().startswith("ready 127.0.0.1:")
    code, lines, _ = service.end(number)
    assert code == 0
    assert lines == ["draining", "drained", "last part closed", "first part closed"]


def test_logs_are_json_lines_that_name_the_process(run):
    service = run(BATON_INSTANCE_ID="router-7")
    service.line()
    _, _, err = service.end(signal.SIGTERM)
    events = [json.loads(line) for line in err.splitlines()]
    assert {event["instance"] for event in events} == {"router-7"}
    assert [event["event"] for event in events][-3:] == [
        "process.service.ready",
        "process.service.stopping",
        "process.service.stopped",
    ]


def test_metrics_are_served(run):
    service = run()
    address = service.line().split()[2]
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=DEADLINE_SECONDS) as answer:
        assert b"process_cpu_seconds_total" in answer.read()


def probe(port: int, path: str) -> tuple[int, str]:
    """Return status and text of a probe; 0: nobody listens yet."""
    try:
        found = httpx.get(f"http://127.0.0.1:{port}{path}", timeout=20)
    except httpx.ConnectError:
        return 0, ""
    return found.status_code, found.text


def test_probes_are_answered_from_the_beginning_to_the_end(run):
    with held_port() as port:
        starting = run("slow-start", BATON_OPS_PORT=str(port))
        eventually_blocking(lambda: probe(port, "/livez")[0] == 200)
        assert starting.line() == "starting"
        assert probe(port, "/livez")[0] == 200
        status, text = probe(port, "/readyz")
        assert (status, text.splitlines()[0]) == (503, "[-]start: the process is starting")
        starting.end(signal.SIGTERM)

        draining = run("slow-drain", BATON_OPS_PORT=str(port))
        assert draining.line().startswith("ready")
        assert probe(port, "/readyz")[0] == 200
        draining.process.send_signal(signal.SIGTERM)
        assert draining.line() == "draining"
        assert probe(port, "/livez")[0] == 200
        status, text = probe(port, "/readyz")
        assert (status, text.splitlines()[-2]) == (503, "[-]drain: the process is stopping")
        draining.close()


def test_stuck_event_loop_is_not_alive(run):
    with held_port() as port:
        service = run("stuck-start", BATON_OPS_PORT=str(port), BATON_OPS_STUCK_SECONDS="1")
        assert service.line() == "starting"
        eventually_blocking(lambda: probe(port, "/livez")[0] == 503)
        service.close()


def test_signal_while_starting_stops_the_start(run):
    service = run("slow-start")
    assert service.line() == "starting"
    code, lines, _ = service.end(signal.SIGTERM)
    assert (code, lines) == (0, ["first part closed"])


def test_drain_that_takes_too_long_is_cut_off(run):
    service = run("slow-drain", BATON_DRAIN_SECONDS="0.3")
    service.line()
    code, lines, err = service.end(signal.SIGTERM)
    assert (code, lines) == (0, ["draining", "last part closed", "first part closed"])
    assert "process.drain.timed_out" in err


def test_signals_in_quick_succession_are_one(run):
    service = run("slow-drain")
    service.line()
    for _ in range(3):
        service.process.send_signal(signal.SIGTERM)
        time.sleep(0.02)  # signals that are not yet taken are one to the kernel already
    assert service.line() == "draining"
    time.sleep(SAME_SIGNAL_SECONDS)
    assert service.process.poll() is None
    service.end(signal.SIGTERM)


def test_second_signal_exits_at_once(run):
    service = run("slow-drain")
    service.line()
    watch = Stopwatch()
    service.process.send_signal(signal.SIGTERM)
    time.sleep(SAME_SIGNAL_SECONDS + 0.1)
    code, lines, err = service.end(signal.SIGTERM)
    assert (code, lines) == (1, ["draining"])
    assert "received a second signal" in err
    assert watch.seconds < 3


@pytest.mark.parametrize("call", ["stuck-start", "deadlocked"])
def test_stuck_process_exits_when_its_time_is_over(run, call):
    service = run(call, BATON_DRAIN_SECONDS="0", BATON_CLOSE_SECONDS="0.3")
    assert service.line() == "starting"
    code, _, err = service.end(signal.SIGTERM)
    assert code == 1
    assert "shutdown took longer than 0.3 s" in err


def test_process_whose_lines_nobody_reads_exits_all_the_same(run):
    service = run("unread", BATON_DRAIN_SECONDS="0", BATON_CLOSE_SECONDS="0.3")
    assert service.line() == "flooding"
    _until_full(service.err)
    service.process.send_signal(signal.SIGTERM)
    assert service.process.wait(10) == 1


def _until_full(pipe: TextIO) -> None:
    """Wait until a pipe that nobody reads takes no more."""
    before, waiting = 0, array("i", [0])
    while not before or waiting[0] != before:
        before = waiting[0]
        time.sleep(0.05)
        fcntl.ioctl(pipe, termios.FIONREAD, waiting)


def test_background_task_that_fails_ends_the_process_with_1(run):
    service = run("failing-task")
    code, lines, err = service.end()
    assert code == 1
    assert lines[-2:] == ["last part closed", "first part closed"]
    assert "draining" not in lines
    assert "RuntimeError: engine on fire" in err


def test_bug_while_starting_is_logged_and_exits_1(run):
    code, lines, err = run("bug").end()
    assert (code, lines) == (1, ["first part closed"])
    assert "RuntimeError: a bug" in err


def test_problem_for_a_person_is_one_sentence_and_exits_2(run):
    code, _, err = run("refuse").end()
    assert code == 2
    assert err == ("baton router: The checkpoint misses config.json: give one that has it.\n")


def test_wrong_setting_is_one_sentence_and_exits_2(run):
    code, lines, err = run("", "--grpc-port", "70000").end()
    assert (code, lines) == (2, [])
    assert err.startswith("baton router: grpc.port is '70000'")
    assert err.count("\n") == 1


@pytest.mark.parametrize("name", ["BATON_GRPC_PORT", "BATON_OPS_PORT"])
def test_port_in_use_is_a_sentence_and_exits_2(run, name):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code, _, err = run("", **{name: port}).end()
    assert code == 2
    last = err.splitlines()[-1]
    assert last.startswith("baton router: ")
    assert port in last
    assert name in last


def test_process_ends_with_the_parent_that_asked_for_it(launcher: Launcher):
    """The parent is killed; what it started drains as if it had been told to."""
    script = (
        "import os, runpy, sys, time\n"
        "if child := os.fork():\n"
        "    print(child, flush=True)\n"
        "    time.sleep(60)\n"
        "os.environ['BATON_PARENT_PID'] = str(os.getppid())\n"
        f"sys.argv = [{str(SCRIPT)!r}]\n"
        f"runpy.run_path({str(SCRIPT)!r}, run_name='__main__')\n"
    )
    read, write = os.pipe()
    parent = launcher.launch(["-c", script], os.environ, stdout=write)
    os.close(write)
    with os.fdopen(read) as out:
        child = int(out.readline())
        assert out.readline().startswith("ready")
        parent.kill()
        parent.wait()
        # The child holds the other end of the pipe: this returns when it has ended.
        assert out.read().splitlines()[-1] == "first part closed"
    eventually_blocking(lambda: _has_ended(child))


def _has_ended(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"  # whoever adopted it has not asked for its code yet


def test_process_whose_parent_is_gone_already_does_not_start(run):
    code, lines, _ = run("", BATON_PARENT_PID="999999").end()
    assert (code, lines) == (0, [])
