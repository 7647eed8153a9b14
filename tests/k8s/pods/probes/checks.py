"""One try of a probe, from the node to the pod's address, as kubelet makes it."""

import asyncio
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

Exec = Callable[[list[str], float], Awaitable[int]]
"""Runs a command in the container, for so many seconds at most, and returns its exit code."""


async def check(
    probe: Mapping[str, Any], container: Mapping[str, Any], address: str, run: Exec, seconds: float
) -> str:
    """Return what is wrong; empty: the probe succeeded.

    Args:
        probe: with `httpGet`, `tcpSocket`, `grpc` or `exec`.
        container: whose ports may be named.
        address: of the pod.
        run: for `exec`.
        seconds: until it has failed.
    """
    try:
        async with asyncio.timeout(seconds):
            if "exec" in probe:
                code = await run(probe["exec"]["command"], seconds)
                return f"exit code {code}" if code else ""
            if "httpGet" in probe:
                return await _http(probe["httpGet"], container, address)
            if "grpc" in probe:
                return await _grpc(probe["grpc"], address, seconds)
            port = port_number(probe["tcpSocket"]["port"], container)
            async with _connection(address, port):
                return ""
    except (OSError, EOFError) as error:
        return f"{type(error).__name__}: {error}"


def port_number(port: int | str, container: Mapping[str, Any]) -> int:
    """Return the number of a container's port that may be named.

    Raises:
        ValueError: it has none of that name.
    """
    if isinstance(port, int):
        return port
    for known in container.get("ports", ()):
        if known.get("name") == port:
            return int(known["containerPort"])
    raise ValueError(f"container {container['name']} has no port named {port}")


async def _http(probe: Mapping[str, Any], container: Mapping[str, Any], address: str) -> str:
    port = port_number(probe["port"], container)
    context = None
    if probe.get("scheme", "HTTP") == "HTTPS":
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # as kubelet does
    async with _connection(address, port, context) as (reader, writer):
        lines = [f"GET {probe.get('path', '/')} HTTP/1.1", f"host: {address}:{port}"]
        lines += ["user-agent: kube-probe", "connection: close"]
        lines += [f"{one['name']}: {one['value']}" for one in probe.get("httpHeaders", ())]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        line = (await reader.readline()).split()
        if len(line) < 2 or not line[1].isdigit():
            return f"no HTTP answer: {line}"
        status = int(line[1])
    return "" if 200 <= status < 400 else f"HTTP status {status}"


@asynccontextmanager
async def _connection(
    address: str, port: int, context: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[StreamReader, StreamWriter]]:
    reader, writer = await asyncio.open_connection(address, port, ssl=context)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(OSError):  # the other side was quicker
            await writer.wait_closed()


async def _grpc(probe: Mapping[str, Any], address: str, seconds: float) -> str:
    async with grpc.aio.insecure_channel(f"{address}:{probe['port']}") as channel:
        request = HealthCheckRequest(service=probe.get("service", ""))
        try:
            answer = await HealthStub(channel).Check(request, timeout=seconds)
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name}: {error.details()}"
    if answer.status == HealthCheckResponse.SERVING:
        return ""
    return HealthCheckResponse.ServingStatus.Name(answer.status)
