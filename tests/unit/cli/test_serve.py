"""`baton serve` is how every process starts; `baton` says what to install for what is missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from baton.host import bundled
from baton.serve import PROCESSES
from baton.settings import SERVICE_SETTINGS


def call(*arguments: str, without: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run `baton` as if these modules were not installed."""
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({without!r}));"
        f"sys.argv[0] = 'baton'; from baton.__main__ import main; main()"
    )
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BATON_")}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=clean,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_every_process_has_settings() -> None:
    assert set(PROCESSES) == set(SERVICE_SETTINGS)


@pytest.mark.parametrize("name", PROCESSES)
def test_every_process_is_where_the_launcher_looks(name: str) -> None:
    assert (bundled.root() / "services" / name / "__main__.py").is_file()


def test_a_process_lists_its_settings_without_the_command_line() -> None:
    done = call("serve", "router", "--help", without=("typer", "rich"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: baton serve router")
    assert "BATON_GRPC_PORT" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("serve",), "PROCESS is missing"),
        (("serve", "planner"), "unknown process 'planner'"),
        (("serve", "kvstore", "--colour", "red"), "baton serve kvstore --help"),
    ],
)
def test_a_wrong_call_is_one_sentence(arguments: tuple[str, ...], said: str) -> None:
    done = call(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_another_package_of_that_name_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "services").mkdir()
    (tmp_path / "services" / "__init__.py").write_text("raise SystemExit('the wrong package')")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from baton.serve import main;"
        "main(['router', '--help'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "missing", "extra"),
    [
        (("up",), "typer", "local"),
        (("demo",), "pydantic", "local"),
        (("config", "show"), "pydantic", "server"),
        (("serve", "decode"), "uvloop", "server"),
        (("chat", "Hello"), "rich", "cli"),
        ((), "typer", "cli"),
    ],
)
def test_what_is_not_installed_is_named(
    arguments: tuple[str, ...], missing: str, extra: str
) -> None:
    done = call(*arguments, without=(missing,))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"needs {missing}, which is not installed" in done.stderr
    assert f"pip install 'baton-serving[{extra}]'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_version_needs_the_client_only() -> None:
    done = call("version", without=("typer", "rich", "torch", "pydantic"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("baton ")


def test_a_signal_while_modules_are_imported_ends_the_process() -> None:
    # The first process of a container is not ended by a signal that it has no handler for.
    code = """
import os, runpy, signal, sys, time
from baton.serve import main
def imports(*_args, **_options):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)
runpy.run_module = imports
main(["router"])
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=60, check=False)
    assert done.returncode == 0


def test_the_simulator_runs_without_what_processes_need(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 800, "output_length": 2}\n')
    done = call(
        *("simulate", str(trace), "--policy", "least-wait", "--multiple", "1"),
        without=("torch", "uvloop", "etcd3", "uvicorn"),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1].split()[:4] == ["least", "wait", "1.00", "0.10"]
