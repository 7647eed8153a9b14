"""Fetches a tokenizer's files from a worker that serves them."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from baton.errors import BatonError
from baton.internal.v1 import worker_pb2, worker_pb2_grpc
from baton.rpc.channels import open_channel
from baton.settings import WorkerConnectionSettings
from baton.tokenizer_files import TokenizerAssembly, TokenizerFiles


class FetchError(Exception):
    """The files did not come whole; another worker may have them."""


async def fetch_tokenizer(
    address: str, digest: bytes, size: int, settings: WorkerConnectionSettings
) -> TokenizerFiles:
    """Return the files that a digest names, verified.

    Args:
        address: of the worker.
        digest: from the model's card.
        size: bytes of all files, from the card; no more are taken.
        settings: how long the worker may take, and be silent.

    Raises:
        FetchError: the worker failed, was silent, or sent something else.
    """
    channel = open_channel(address)
    request = worker_pb2.GetTokenizerRequest(digest=digest)
    call: Any = worker_pb2_grpc.WorkerServiceStub(channel).GetTokenizer(
        request, timeout=settings.tokenizer_seconds
    )
    assembly = TokenizerAssembly(size)
    try:
        async for piece in _pieces(call, settings.tokenizer_silence_seconds):
            assembly.add(piece)
        return await asyncio.to_thread(assembly.verified, digest)
    except grpc.aio.AioRpcError as error:
        raise FetchError(BatonError.from_rpc_error(error).message) from error
    except TimeoutError as error:
        raise FetchError(f"nothing came for {settings.tokenizer_silence_seconds:g} s") from error
    except ValueError as error:
        raise FetchError(str(error)) from error
    finally:
        call.cancel()
        await channel.close(None)


async def _pieces(
    call: Any, silence_seconds: float
) -> AsyncIterator[worker_pb2.GetTokenizerResponse]:
    while True:
        async with asyncio.timeout(silence_seconds):
            piece = await call.read()
        if piece is grpc.aio.EOF:  # type: ignore[attr-defined]  # not in the stubs
            return
        yield piece
