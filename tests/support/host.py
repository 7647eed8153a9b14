"""The host as every test finds it, whatever machine, user and shell the tests are run by.

Tests read settings from the environment, put files into temporary, run and home directories, and
look for clusters that this user runs. None of it may be the host's: a variable of a developer's
shell would change what tests do, and a `baton up` next to them would be found. So each process
that runs tests, and with it all that it starts, has directories of its own and one environment.
"""

import os
import signal
import tempfile
import time
from collections.abc import Mapping, MutableMapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

TIME_ZONE_ENV, LOCALE_ENV = "TESTS_TZ", "TESTS_LANG"
"""Another time zone and locale for the tests, which have to pass in any: `make verdict`."""

KEPT = frozenset({"BATON_NATIVE_VARIANT", "BATON_TEST_IMAGES"})
"""Said to tests, by the Makefile."""

REMOVED = (
    "BATON_",  # settings
    "XDG_",  # directories
    "LC_",
    "LANG",
    "OTEL_",  # where telemetry goes
    "PG",  # where asyncpg finds a database
    "ETCDCTL_",
    "GRPC_",  # what grpcio logs, and whom it trusts
    "OPENAI_",
    "HF_",
    "TRANSFORMERS_",
    "KUBERNETES_",  # of a pod that runs tests
    "KUBECONFIG",
    "MALLOC_",
    "NOTIFY_SOCKET",
    # What makes texts for terminals longer, or colors them.
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
"""How variables begin that tests do not get from the shell."""

LOCAL = "127.0.0.1,localhost,::1"
"""Never reached by a proxy."""


def isolate(environ: MutableMapping[str, str], directory: Path) -> None:
    """Make an environment that of tests, with directories within `directory`.

    Args:
        environ: changed.
        directory: of one process that runs tests; not long, for sockets lie within it.
    """
    zone, locale = environ.get(TIME_ZONE_ENV, "UTC"), environ.get(LOCALE_ENV, "C.UTF-8")
    home = Path(environ.get("HOME", "/nonexistent"))
    # Caches of downloads are no state, and packages that tests install are large.
    environ.setdefault("PIP_CACHE_DIR", environ.get("XDG_CACHE_HOME", f"{home}/.cache") + "/pip")
    for name in environ.keys() - KEPT:
        if name.startswith(REMOVED):
            del environ[name]
    for name, folder in {"HOME": "home", "TMPDIR": "tmp", "XDG_RUNTIME_DIR": "run"}.items():
        path = directory / folder
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        environ[name] = str(path)
    environ |= {"TZ": zone, "LANG": locale}
    # What vLLM finds out of a model takes it ten seconds of CPU: once per checkout.
    environ["VLLM_CACHE_ROOT"] = str(ROOT / "build" / "vllm")
    for name in ("NO_PROXY", "no_proxy"):
        environ[name] = ",".join(filter(None, (environ.get(name), LOCAL)))


def variables() -> Mapping[str, str]:
    """Return what each process of a test must have, also one that is given nothing else."""
    names = ("HOME", "TMPDIR", "XDG_RUNTIME_DIR", "TZ", "LANG")
    return {name: os.environ[name] for name in names}


def take_own_host(config: pytest.Config) -> None:
    """Give this process, whether or not a worker of xdist, a host of its own.

    Its directories lie in the run's temporary one, so that they go with it.
    """
    directory = config._tmp_path_factory.getbasetemp() / "host"  # type: ignore[attr-defined]
    isolate(os.environ, directory)
    os.umask(0o022)
    tempfile.tempdir = None  # else what was found before stays
    time.tzset()
    hear_signals()


def hear_signals() -> None:
    """Let what tests start hear the signals to which a background job's shell or nohup is deaf.

    What is ignored is ignored by each process that is started, and what has a handler is not.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
