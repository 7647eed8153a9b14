"""Fetches a tokenizer's files from a worker that serves them."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from baton.errors import BatonError
from baton.internal.v1 import worker_pb2, worker_pb2_grpc
from baton.rpc.channels import open_channel
from baton.tokenizer_files import TokenizerAssembly, TokenizerFiles

TOTAL_SECONDS = 60.0
SILENCE_SECONDS = 3.0
"""A worker that sends nothing for so long is given up: another one may serve the same files."""


class FetchError(Exception):
    """The files did not come whole; another worker may have them."""


async def fetch_tokenizer(address: str, digest: bytes, size: int) -> TokenizerFiles:
    """Return the files that a digest names, verified.

    Args:
        address: of the worker.
        digest: from the model's card.
        size: bytes of all files, from the card; no more are taken.

    Raises:
        FetchError: the worker failed, was silent, or sent something else.
    """
    channel = open_channel(address)
    request = worker_pb2.GetTokenizerRequest(digest=digest)
    call: Any = worker_pb2_grpc.WorkerServiceStub(channel).GetTokenizer(
        request, timeout=TOTAL_SECONDS
    )
    assembly = TokenizerAssembly(size)
    try:
        async for piece in _pieces(call):
            assembly.add(piece)
        return await asyncio.to_thread(assembly.verified, digest)
    except grpc.aio.AioRpcError as error:
        raise FetchError(BatonError.from_rpc_error(error).message) from error
    except TimeoutError as error:
        raise FetchError(f"nothing came for {SILENCE_SECONDS:g} s") from error
    except ValueError as error:
        raise FetchError(str(error)) from error
    finally:
        call.cancel()
        await channel.close(None)


async def _pieces(call: Any) -> AsyncIterator[worker_pb2.GetTokenizerResponse]:
    while True:
        async with asyncio.timeout(SILENCE_SECONDS):
            piece = await call.read()
        if piece is grpc.aio.EOF:  # type: ignore[attr-defined]  # not in the stubs
            return
        yield piece
