"""The launcher's process: `forker.py FD` forks on commands from a socket. See launcher.py.

PYTHONPATH is the location of Baton, in the launcher's version of it.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import socket
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import NoReturn

PARENT_ENV = "BATON_PARENT_PID"
MAX_REQUEST_BYTES = 1 << 20
PRELOAD = (
    "baton.cli.app",
    "baton.cli.inspect.kv",
    "baton.kv.client.client",
    "baton.process.lifecycle",
    "baton.rpc.server",
)
ENGINES = {
    "torch": "baton.engine.torch.runner",
    # Takes seconds of CPU to import. vLLM reads its environment later, and starts no threads yet.
    "vllm": "baton.engine.vllm.factory",
}


def _serve(control: socket.socket) -> None:
    """Fork on command until the other side closes."""
    codes: dict[int, int] = {}
    requester = os.getppid()
    while True:
        message, fds, _, _ = socket.recv_fds(control, MAX_REQUEST_BYTES, 3)
        if not message:
            return
        request = json.loads(message)
        if request["method"] == "run":
            _import(_needed(request["arguments"], request["env"]))
            pid = os.fork()
            if pid == 0:
                control.close()
                _become(request["arguments"], request["env"], fds, requester)
            for fd in fds:
                os.close(fd)
            answer: int | None = pid
        else:
            pid = request["pid"]
            if pid not in codes:
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    codes[pid] = os.waitstatus_to_exitcode(status)
            answer = codes.get(pid)
        control.send(json.dumps(answer).encode())


def _needed(arguments: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """Return the modules that a process will import: those of a service, and of its engine."""
    if arguments[0].endswith("vllm_reference.py"):
        return [ENGINES["vllm"]]
    if arguments[0] != "-m":
        return []
    if arguments[1:3] != ["baton", "serve"]:
        return [f"{arguments[1]}.__main__"]
    main = f"services.{arguments[3]}.__main__"
    if arguments[3] not in ("prefill", "decode"):
        return [main]
    engine = ENGINES.get(env.get("BATON_ENGINE_KIND", "torch"))
    return [main, engine] if engine else [main]


_imported: set[str] = set()


def _import(modules: Sequence[str]) -> None:
    """Import missing modules, for this process and all that it forks from now on."""
    missing = [module for module in modules if module not in _imported]
    for module in missing:
        if module == ENGINES["vllm"]:
            _prepare_vllm()
        importlib.import_module(module)
        _imported.add(module)
        if module.endswith(".__main__"):
            del sys.modules[module]  # the module is run again
    if missing:
        gc.collect()
        gc.freeze()  # otherwise a child's first garbage collection copies every page


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even its folder
        return False


def _prepare_vllm() -> None:
    """Set the variables that vLLM reads when it is imported; each process sets its own again."""
    from baton.engine.vllm.environment import prepare
    from baton.settings import EngineSettings

    prepare(EngineSettings())


def _become(
    arguments: Sequence[str], env: dict[str, str], fds: Sequence[int], requester: int
) -> NoReturn:
    """Run `python ARGUMENTS` in this process, and exit."""
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    if env.get(PARENT_ENV) == str(requester):
        env[PARENT_ENV] = str(os.getppid())
    os.environ.clear()
    os.environ.update(env)
    code: object = None
    try:
        if arguments[0] == "-m":
            sys.argv = list(arguments[1:])
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        elif arguments[0] == "-c":
            sys.argv = ["-c", *arguments[2:]]
            exec(arguments[1], {"__name__": "__main__"})
        else:
            sys.argv = list(arguments)
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as exit_:
        code = exit_.code
    except BaseException:  # noqa: BLE001  # as the interpreter would end
        traceback.print_exc()
        code = 1
    # As multiprocessing ends its children: finalizing the interpreter would take half a second.
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


if __name__ == "__main__":
    _import([module for module in PRELOAD if _exists(module)])  # other versions lack some
    _serve(socket.socket(fileno=int(sys.argv[1])))
