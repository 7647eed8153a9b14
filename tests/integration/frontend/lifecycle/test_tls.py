"""The frontend with TLS: the same clients, on both ports, and none without it."""

import asyncio
from io import StringIO
from typing import Any

import grpc
import httpx
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from rich.console import Console

from baton.cli.chat import models
from baton.cli.shared.errors import CommandError
from baton.cli.shared.options import FrontendOptions
from baton.client import AsyncClient
from baton.client.errors import ConnectionFailedError
from baton.cluster.members.membership import health_address
from baton.cluster.members.probe import liveness
from baton.rpc.channels import open_channel
from baton.v1.inference_pb2 import ListModelsRequest
from baton.v1.inference_pb2_grpc import InferenceServiceStub
from tests.support.clock import DEADLINE_SECONDS, within
from tests.support.tls import CERT, KEY, client_context

SETTINGS = {"public.tls_cert": CERT, "public.tls_key": KEY}


@pytest.fixture
async def secure_stage(empty_stage: Any) -> Any:
    await empty_stage.set(SETTINGS)
    return empty_stage


@pytest.mark.xdist_group("openai")
async def test_openai_over_https(secure_stage: Any) -> None:
    import openai  # takes a second

    url = secure_stage.http_url.replace("http://", "https://")
    messages: Any = [{"role": "user", "content": "hi"}]
    http = httpx.AsyncClient(verify=client_context())
    async with openai.AsyncOpenAI(
        base_url=f"{url}/v1", api_key="none", max_retries=0, http_client=http
    ) as client:
        stream = await client.chat.completions.create(
            model=secure_stage.model, messages=messages, max_completion_tokens=5, stream=True
        )
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        assert text == secure_stage.said(0, 5)
        assert [model.id async for model in client.models.list()] == [secure_stage.model]


async def test_https_speaks_http1_and_plain_http_is_refused(secure_stage: Any) -> None:
    address = secure_stage.frontend.instance.http_address
    context = client_context("h2", "http/1.1")
    async with httpx.AsyncClient(verify=context) as client:
        answer = await client.get(f"https://{address}/health")
        assert (answer.status_code, answer.http_version) == (200, "HTTP/1.1")
        tls = answer.extensions["network_stream"].get_extra_info("ssl_object")
        assert tls.selected_alpn_protocol() == "http/1.1"
        with pytest.raises(httpx.TransportError):
            await client.get(f"http://{address}/health", timeout=DEADLINE_SECONDS)
    async with httpx.AsyncClient() as stranger:  # does not know the certificate
        with pytest.raises(httpx.ConnectError):
            await stranger.get(f"https://{address}/health", timeout=DEADLINE_SECONDS)


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nhost: x\r\n%b\r\n" % (b"a: b\r\n" * 9000), b"431"),
        (b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 9999999\r\n\r\n", b"413"),
        (
            b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
            b"400",
        ),
    ],
)
async def test_what_is_refused_is_told_over_tls_too(
    secure_stage: Any, said: bytes, status: bytes
) -> None:
    host, port = secure_stage.frontend.instance.http_address.split(":")
    context = client_context("http/1.1")
    reader, writer = await asyncio.open_connection(
        host, int(port), ssl=context, server_hostname="localhost"
    )
    writer.write(said)
    async with within(10):
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 " + status)
    writer.close()


async def test_batons_client_with_credentials(secure_stage: Any) -> None:
    credentials = grpc.ssl_channel_credentials(CERT.read_bytes())
    address = secure_stage.grpc_address
    async with AsyncClient(address, credentials=credentials) as client:
        stream = client.chat("hi", model=secure_stage.model, max_tokens=5)
        assert (await stream.answer()).text == secure_stage.said(0, 5)
    async with AsyncClient(address, retries=0, timeout=DEADLINE_SECONDS) as plain:
        with pytest.raises(ConnectionFailedError):
            await plain.models()


async def test_commands_with_tls(secure_stage: Any) -> None:
    shown = StringIO()
    address = secure_stage.grpc_address
    trusting = FrontendOptions(address, tls_ca=CERT)
    await asyncio.to_thread(models, address, trusting, Console(file=shown, width=100), False)
    assert secure_stage.model in shown.getvalue()
    for other in (FrontendOptions(address), FrontendOptions(address, tls=True)):
        with pytest.raises(CommandError):
            await asyncio.to_thread(models, address, other, Console(file=shown), False)


async def test_the_cluster_checks_its_health_without_tls(secure_stage: Any) -> None:
    instance = secure_stage.frontend.instance
    assert await liveness(health_address(instance), instance.incarnation, 5) == "alive"
    assert await liveness(instance.address, instance.incarnation, 5) == "dead"
    async with open_channel(instance.health_address) as channel:
        await eventually_serving(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await InferenceServiceStub(channel).ListModels(
                ListModelsRequest(), timeout=DEADLINE_SECONDS
            )
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def eventually_serving(channel: grpc.aio.Channel) -> None:
    """Wait until the health at a channel is SERVING."""
    watch = HealthStub(channel).Watch(HealthCheckRequest(), timeout=DEADLINE_SECONDS)
    async for response in watch:
        if response.status == HealthCheckResponse.SERVING:
            return


async def test_a_wrong_file_is_one_sentence_at_the_start(spawn_service: Any, tmp_path: Any) -> None:
    wrong = tmp_path / "none.pem"
    env = {"BATON_PUBLIC_TLS_CERT": str(wrong), "BATON_PUBLIC_TLS_KEY": str(KEY)}
    frontend = await spawn_service("frontend", env, wait=False)
    assert await frontend.wait(30.0) == 2
    last = frontend.log_path.read_text().splitlines()[-1]
    assert last.startswith(f"baton frontend: public.tls_cert {wrong} cannot be read")
