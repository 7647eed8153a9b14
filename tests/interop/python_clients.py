"""Call tools with Python's clients, unmodified: `make interop-python`; one line per case.

python -m tests.interop.python_clients PYTHON    PYTHON has what requirements.txt lists
"""

import asyncio
import subprocess
import sys
from pathlib import Path

from bench.harness.cluster import cluster

SETTINGS = {"BATON_TELEMETRY_LOG_LEVEL": "error"}


async def main(python: str) -> int:
    failures = 0
    async with cluster("--engine=torch", settings=SETTINGS) as up:
        for interpreter, name in ((sys.executable, "openai_tools.py"), (python, "frameworks.py")):
            script = Path(__file__).with_name(name)
            command = [interpreter, script, f"http://{up.http}/v1", up.model]
            ran = await asyncio.to_thread(
                subprocess.run, command, timeout=900, env={"PATH": "/usr/bin:/bin"}
            )
            failures += ran.returncode
    return failures


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1])))
