"""Fetches a tokenizer's files from a worker that serves them."""

import asyncio
from contextlib import aclosing

from baton.errors import BatonError
from baton.internal.v1 import worker_pb2, worker_pb2_grpc
from baton.rpc.channel.channel import Channel
from baton.rpc.streams.client import messages
from baton.settings import WorkerConnectionSettings
from baton.worker.wire.tokenizer_files import TokenizerAssembly, TokenizerFiles


class FetchError(Exception):
    """The files were not received completely; another worker may have them."""


async def fetch_tokenizer(
    address: str, digest: bytes, size: int, settings: WorkerConnectionSettings
) -> TokenizerFiles:
    """Return the verified files of a digest.

    Args:
        address: of the worker.
        digest: from the model's card.
        size: total bytes of the files, from the card; no more are accepted.
        settings: the worker's deadlines for the transfer and between messages.

    Raises:
        FetchError: the worker failed, stalled, or sent other files.
    """
    channel = Channel(address)
    request = worker_pb2.GetTokenizerRequest(digest=digest)
    stub = channel.stub(worker_pb2_grpc.WorkerServiceStub)
    call = stub.GetTokenizer(request, timeout=settings.tokenizer_seconds)
    assembly = TokenizerAssembly(size)
    try:
        async with aclosing(messages(call, settings.tokenizer_silence_seconds)) as pieces:
            async for piece in pieces:
                assembly.add(piece)
        return await asyncio.to_thread(assembly.verified, digest)
    except BatonError as error:
        raise FetchError(error.message) from error
    except ValueError as error:
        raise FetchError(str(error)) from error
    finally:
        await channel.close()
