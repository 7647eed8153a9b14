"""Run one of the servers: `python -m bench.rpc.serve NAME STEP_SECONDS`; prints its port."""

import sys
from contextlib import redirect_stdout
from importlib import import_module

import uvloop

from bench.rpc.steps import Steps


async def serve(name: str, step_seconds: float) -> None:
    steps = Steps(step_seconds)
    module = import_module(f"bench.rpc.servers.{name}")
    with redirect_stdout(sys.stderr):  # servers may log
        port = await module.start(steps)
    print(port, flush=True)
    await steps.run()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], float(sys.argv[2])))
