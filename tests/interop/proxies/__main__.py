"""Call a frontend through nginx and HAProxy: `make interop-proxies`; one line per case.

They are not installed by this: `apt-get install haproxy nginx-light`. A JDK is used where there is
one.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from bench.harness.cluster import cluster
from tests.interop.proxies.cases import CASES, Front
from tests.interop.proxies.programs import missing, proxies
from tests.interop.proxies.relay import CountingRelay

SETTINGS = {
    "BATON_PUBLIC_METRICS": "true",
    "BATON_TELEMETRY_LOG_LEVEL": "error",
    "BATON_ENGINE_SIM_PREFILL_TOKENS_PER_SECOND": "1000000",
    "BATON_ENGINE_SIM_DECODE_STEP_SECONDS": "0.02",
}


async def main() -> int:
    failures = 0
    with tempfile.TemporaryDirectory() as temporary:
        async with (
            cluster("--engine=sim", "--prefill=1", "--decode=1", settings=SETTINGS) as up,
            CountingRelay(up.http) as relay,
            proxies(relay.port, Path(temporary)) as ports,
        ):
            direct = int(up.http.rsplit(":", 1)[1])
            for way, port in {"direct": relay.port, **ports}.items():
                front = Front(port, direct, up.model, relay)
                for name, case in CASES.items():
                    try:
                        said = await case(front)
                    except Exception as error:  # noqa: BLE001 - it is the case's, and the others go on
                        failures += 1
                        said = f"FAILED: {_first(error)}"
                    print(f"{way:22} {name:20} {said}", flush=True)
    return failures


def _first(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return repr(error)[:600]


if __name__ == "__main__":
    if packages := missing():
        print(f"skipped: apt-get install {' '.join(packages)}", file=sys.stderr)
        sys.exit(0)
    sys.exit(asyncio.run(main()) != 0)
