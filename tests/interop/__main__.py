"""Call a frontend with gRPC of other languages: `make interop`; one line per case.

python -m tests.interop MODULES    MODULES holds what npm installed from package.json
"""

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from baton.internal.v1 import router_pb2
from baton.v1 import inference_pb2
from bench.harness.cluster import cluster
from tests.interop.buf_curl import BufCurl

SETTINGS = {
    "BATON_ENGINE_SIM_PREFILL_TOKENS_PER_SECOND": "1000000",
    "BATON_GRPC_REFLECTION": "true",
}


def descriptors() -> bytes:
    """Return all messages and services that the cases use, each file after those it imports."""
    found = FileDescriptorSet()
    seen: set[str] = set()

    def add(file) -> None:
        if file.name not in seen:
            seen.add(file.name)
            for imported in file.dependencies:
                add(imported)
            file.CopyToProto(found.file.add())

    for module in (
        inference_pb2,
        router_pb2,
        health_pb2,
        reflection_pb2,
        status_pb2,
        error_details_pb2,
    ):
        add(module.DESCRIPTOR)
    return found.SerializeToString()


async def main(modules: Path, buf: Path) -> int:
    shutil.copy(Path(__file__).with_name("grpc_js.cjs"), modules)
    (modules / "descriptors.binpb").write_bytes(descriptors())
    async with cluster("--engine=sim", settings=SETTINGS) as up:
        command = ["node", "grpc_js.cjs", "descriptors.binpb", up.grpc]
        node = await asyncio.to_thread(subprocess.run, command, cwd=modules, timeout=300)
        failures = await BufCurl(buf, modules / "descriptors.binpb", up.grpc, up.model).run()
    return node.returncode or failures


if __name__ == "__main__":
    installed = Path(sys.argv[1]).resolve()
    # Not npm's wrapper around it, which does not pass on that it is killed.
    (program,) = installed.glob("node_modules/@bufbuild/buf-*/bin/buf")
    sys.exit(asyncio.run(main(installed, program)))
