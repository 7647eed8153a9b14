"""The same host environment for every test, whatever the machine, user and shell.

Tests read settings from the environment, create files in temporary, run and home directories, and
look for clusters of this user. None of this may come from the host: a variable of a developer's
shell would change the tests, and they would find a running `baton up`. So each process that runs
tests, and everything that it starts, has its own directories and one environment.
"""

import os
import signal
import tempfile
import time
from collections.abc import Mapping, MutableMapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

TIME_ZONE_ENV, LOCALE_ENV = "TESTS_TZ", "TESTS_LANG"
"""Another time zone and locale for the tests, which must pass in any: `make verdict`."""

KEPT = frozenset({"BATON_NATIVE_VARIANT", "BATON_TEST_IMAGES"})
"""Variables that the Makefile sets for tests."""

REMOVED = (
    "BATON_",  # settings
    "XDG_",  # directories
    "LC_",
    "LANG",
    "OTEL_",  # where telemetry goes
    "PG",  # where asyncpg finds a database
    "ETCDCTL_",
    "GRPC_",  # logs and trusted certificates of grpcio
    "OPENAI_",
    "HF_",
    "TRANSFORMERS_",
    "KUBERNETES_",  # of a pod that runs tests
    "KUBECONFIG",
    "MALLOC_",
    "NOTIFY_SOCKET",
    # variables that make terminal output longer, or color it
    "COLUMNS",
    "LINES",
    "FORCE_COLOR",
    "NO_COLOR",
    "PY_COLORS",
    "TTY_",
    "GITHUB_ACTIONS",
    "TMP",
    "TEMP",
)
"""Prefixes of variables that tests do not inherit from the shell."""

LOCAL = "127.0.0.1,localhost,::1"
"""Addresses that are never reached through a proxy."""


def isolate(environ: MutableMapping[str, str], directory: Path) -> None:
    """Turn an environment into that of tests, with directories within `directory`.

    Args:
        environ: changed.
        directory: belongs to one process that runs tests; a short path, as it contains sockets.
    """
    zone, locale = environ.get(TIME_ZONE_ENV, "UTC"), environ.get(LOCALE_ENV, "C.UTF-8")
    home = Path(environ.get("HOME", "/nonexistent"))
    # Caches of downloads hold no state, and packages that tests install are large.
    environ.setdefault("PIP_CACHE_DIR", environ.get("XDG_CACHE_HOME", f"{home}/.cache") + "/pip")
    for name in environ.keys() - KEPT:
        if name.startswith(REMOVED):
            del environ[name]
    for name, folder in {"HOME": "home", "TMPDIR": "tmp", "XDG_RUNTIME_DIR": "run"}.items():
        path = directory / folder
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        environ[name] = str(path)
    environ |= {"TZ": zone, "LANG": locale}
    # vLLM takes ten seconds of CPU to inspect a model: once per checkout.
    environ["VLLM_CACHE_ROOT"] = str(ROOT / "build" / "vllm")
    for name in ("NO_PROXY", "no_proxy"):
        environ[name] = ",".join(filter(None, (environ.get(name), LOCAL)))


def variables() -> Mapping[str, str]:
    """Return the variables that every process of a test needs, even in an empty environment."""
    names = ("HOME", "TMPDIR", "XDG_RUNTIME_DIR", "TZ", "LANG")
    return {name: os.environ[name] for name in names}


def take_own_host(config: pytest.Config) -> None:
    """Give this process its own host environment, whether or not it is a worker of xdist.

    Its directories are in the run's temporary one and are removed with it.
    """
    directory = config._tmp_path_factory.getbasetemp() / "host"  # type: ignore[attr-defined]
    isolate(os.environ, directory)
    os.umask(0o022)
    tempfile.tempdir = None  # otherwise the earlier result stays
    time.tzset()
    hear_signals()


def hear_signals() -> None:
    """Restore the handlers of signals that a background job's shell or nohup ignores.

    A child process inherits ignored signals, but not handlers.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
