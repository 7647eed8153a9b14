"""Runs one line like the HTTP request that it describes, in the class batch."""

from dataclasses import replace
from typing import Any

import msgspec

from baton.settings import FrontendLimits
from baton.tenancy.records.tenants import Scope as KeyScope
from baton.v1 import common_pb2
from services.frontend.generation.inference import Inference
from services.frontend.openai.batches.endpoints import CHAT, RESPONSES, TOKENIZE
from services.frontend.openai.multi_prompt import GenerationBatch
from services.frontend.openai.request.decode import read_chat, read_completion, read_tokenize
from services.frontend.openai.request.parse import (
    RequestNames,
    chat_request,
    completion_requests,
    tokenized,
)
from services.frontend.openai.request.schema import ChatBody, CompletionBody
from services.frontend.openai.response import templates
from services.frontend.openai.response.encoder import WholeEncoder
from services.frontend.openai.response.options import response_options
from services.frontend.openai.responses.encoder import ResponseEncoder
from services.frontend.openai.responses.input.prepare import ResponsePreparer
from services.frontend.openai.responses.storing import name_response
from services.frontend.openai.stream import BodyEncoder, run_whole
from services.frontend.requests.record import RequestRecord
from services.frontend.requests.request import GenerationRequest

_object = msgspec.json.Decoder(dict[str, Any])


class LineExecution:
    """Runs lines. One per frontend, on the event loop.

    Args:
        inference: runs their requests.
        preparer: reads bodies of responses.
        limits: of requests.
        unknown: whether fields of bodies that are not known are ignored.
    """

    def __init__(
        self,
        inference: Inference,
        preparer: ResponsePreparer,
        limits: FrontendLimits,
        *,
        unknown: bool,
    ) -> None:
        self._inference = inference
        self._preparer = preparer
        self._limits = limits
        self._unknown = unknown

    async def run(
        self, endpoint: str, data: bytes, name: str, record: RequestRecord, *, urgent: bool
    ) -> dict[str, Any]:
        """Return the body of a line's response.

        Args:
            endpoint: that the line names.
            data: its body.
            name: of the request.
            record: filled in; has the caller.
            urgent: whether it runs as interactive requests do.

        Raises:
            BatonError: the request is rejected, or failed.
        """
        names = RequestNames(name)
        if endpoint == TOKENIZE:
            return await self._tokenize(data, record)
        if endpoint == RESPONSES:
            return await self._respond(data, names, record, urgent)
        if endpoint == CHAT:
            chat = read_chat(data, unknown=self._unknown)
            asked = [chat_request(chat, names, self._limits.max_messages)]
            return await self._complete(chat, asked, record, urgent)
        body = read_completion(data, unknown=self._unknown)
        requests = completion_requests(body, names, self._limits.max_outputs)
        return await self._complete(body, requests, record, urgent)

    async def _complete(
        self,
        body: ChatBody | CompletionBody,
        asked: list[GenerationRequest],
        record: RequestRecord,
        urgent: bool,
    ) -> dict[str, Any]:
        template = templates.CHAT if isinstance(body, ChatBody) else templates.COMPLETION
        batch = GenerationBatch()
        try:
            requests = [self._as_batch(request, urgent) for request in asked]
            await batch.start(self._inference, requests, record)
            resolved = [generation.request for generation in batch.generations]
            options = await response_options(body, template, requests, resolved)
            return await _whole(batch, WholeEncoder(template, options, resolved))
        finally:
            batch.close()

    async def _respond(
        self, data: bytes, names: RequestNames, record: RequestRecord, urgent: bool
    ) -> dict[str, Any]:
        unstored = msgspec.json.encode(_object.decode(data) | {"store": False})
        _, body, asked, context = await self._preparer.prepare(unstored, names, record.principal)
        batch = GenerationBatch()
        try:
            await batch.start(self._inference, [self._as_batch(asked.generation, urgent)], record)
            (generation,) = batch.generations
            name = name_response(context, body)
            return await _whole(batch, ResponseEncoder(name, asked, generation.request))
        finally:
            batch.close()

    async def _tokenize(self, data: bytes, record: RequestRecord) -> dict[str, Any]:
        record.principal.require(KeyScope.INFERENCE)
        body = read_tokenize(data)
        prompt, options = tokenized(body, self._limits.max_messages)
        model, ids = await self._inference.tokenization.tokenize(
            body.model or "", prompt, record, options
        )
        answer = {"count": len(ids), "max_model_len": model.context_tokens, "tokens": ids}
        if body.return_token_strs:
            answer["token_strs"] = model.tokenizer.token_texts(ids)
        return answer

    def _as_batch(self, request: GenerationRequest, urgent: bool) -> GenerationRequest:
        """Return a request in the class batch: nobody waits for it."""
        return replace(
            request,
            priority=common_pb2.PRIORITY_CLASS_BATCH,
            urgent=urgent,
            timeout_seconds=request.timeout_seconds or self._limits.max_deadline_seconds,
        )


async def _whole(batch: GenerationBatch, encoder: BodyEncoder) -> dict[str, Any]:
    """Run requests to their ends, and return their response."""
    await run_whole(batch, encoder)
    return encoder.body()
