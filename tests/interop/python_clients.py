"""Call tools with Python's clients, unmodified: `make interop-python`; one line per case.

All cases run against a model of workers, and against the same model as one of a provider, whose
upstream is the cluster itself.

python -m tests.interop.python_clients PYTHON RESPONSES    PYTHON has what requirements.txt lists,
                                                           RESPONSES what responses.txt does
"""

import asyncio
import subprocess
import sys
from pathlib import Path

import httpx

from bench.harness.cluster import Cluster, cluster
from tests.support.wait import eventually

SETTINGS = {
    "BATON_TELEMETRY_LOG_LEVEL": "error",
    "BATON_PROVIDERS_ALLOWED_NETWORKS": "127.0.0.0/8",
}
PROVIDED = "at-provider"


async def provide(up: Cluster) -> None:
    """Make the cluster's model one of a provider, too."""
    url = f"http://{up.http}/v1"
    baton = str(Path(sys.executable).with_name("baton"))
    model = f"{PROVIDED}={up.model},context=4096,output=2048"
    command = (baton, "providers", "set", "itself", "--http", "--url", url, "--model", model)
    environment = {"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": up.runtime}
    await asyncio.to_thread(subprocess.run, command, timeout=60, env=environment, check=True)
    async with httpx.AsyncClient(base_url=url) as http:

        async def listed() -> bool:
            return PROVIDED in (await http.get("/models")).text

        await eventually(listed)


async def main(python: str, responses: str) -> int:
    failures = 0
    async with cluster("--engine=torch", "--conversations", settings=SETTINGS) as up:
        await provide(up)
        for model in (up.model, PROVIDED):
            print(f"model {model}", flush=True)
            scripts = (
                (sys.executable, "openai_tools.py"),
                (python, "frameworks.py"),
                (responses, "responses.py"),
            )
            for interpreter, name in scripts:
                script = Path(__file__).with_name(name)
                command = [interpreter, script, f"http://{up.http}/v1", model]
                ran = await asyncio.to_thread(
                    subprocess.run, command, timeout=900, env={"PATH": "/usr/bin:/bin"}
                )
                failures += ran.returncode
    return failures


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
