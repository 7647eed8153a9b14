"""The public gRPC service."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial

from baton.errors import BatonError, abort
from baton.request.stream_events import Event, event_to_proto
from baton.rpc.request_id import REQUEST_ID_KEY
from baton.rpc.server.call import ServerCall
from baton.sampling import SamplingParams
from baton.telemetry.context import request_id
from baton.tenancy.directory.principal import Principal
from baton.tenancy.records.auto import AUTO
from baton.tenancy.records.tenants import Scope
from baton.v1 import inference_pb2, inference_pb2_grpc
from services.frontend.access.authenticator import Authenticator
from services.frontend.generation.inference import Inference
from services.frontend.grpc.convert import generation_request, tokenized
from services.frontend.grpc.recording import INFERENCE, OPERATIONS
from services.frontend.grpc.session.session import GrpcSession
from services.frontend.grpc.streaming import count_cut, follow_call, sending_head
from services.frontend.models.model import AutoModel
from services.frontend.requests.record import RequestRecord, begin, finish
from services.frontend.requests.request_id import identify

Response = type[inference_pb2.GenerateResponse] | type[inference_pb2.ChatResponse]


class InferenceServicer(inference_pb2_grpc.InferenceServiceServicer):
    """Serves clients. Errors are BatonErrors, which the server's guard turns into status."""

    def __init__(
        self,
        inference: Inference,
        authenticator: Authenticator,
        max_session_requests: int = 256,
    ) -> None:
        """Serve `inference`.

        Args:
            inference: what runs requests.
            authenticator: identifies callers.
            max_session_requests: most open requests per session.
        """
        self._inference = inference
        self._authenticator = authenticator
        self._max_session_requests = max_session_requests
        self._sessions: set[GrpcSession] = set()

    def drain(self) -> None:
        """End each session after its last request; `inference` rejects new ones."""
        for session in list(self._sessions):
            session.drain()

    # Sends instead of yielding: a token costs no task switch.
    async def Generate(  # type: ignore[override]  # noqa: N802
        self, request: inference_pb2.GenerateRequest, context: ServerCall
    ) -> None:
        record = self._begin("Generate", context)
        await self._stream(request, context, record, inference_pb2.GenerateResponse)

    async def Chat(  # type: ignore[override]  # noqa: N802
        self, request: inference_pb2.ChatRequest, context: ServerCall
    ) -> None:
        record = self._begin("Chat", context)
        await self._stream(request, context, record, inference_pb2.ChatResponse)

    async def Session(  # type: ignore[override]  # noqa: N802
        self,
        requests: AsyncIterator[inference_pb2.SessionRequest],  # noqa: ARG002 - received instead
        context: ServerCall,
    ) -> None:
        admit = self._session_admission(context)
        session = GrpcSession(self._inference, context, self._max_session_requests, admit)
        self._sessions.add(session)
        try:
            await session.serve()
        except BatonError as error:
            await abort(context, error)  # after frames that are still to be read
        except asyncio.CancelledError:
            count_cut(context.failure)
            raise
        finally:
            self._sessions.discard(session)

    async def Tokenize(  # type: ignore[override]  # noqa: N802
        self, request: inference_pb2.TokenizeRequest, context: ServerCall
    ) -> inference_pb2.TokenizeResponse:
        record = self._begin("Tokenize", context)
        context.send_head(((REQUEST_ID_KEY, identify(request_id.get())),))
        prompt, options = tokenized(request, self._inference.limits.max_messages)
        model, ids = await self._inference.tokenization.tokenize(
            request.model, prompt, record, options
        )
        texts = model.tokenizer.token_texts(ids) if request.return_token_texts else ()
        return inference_pb2.TokenizeResponse(
            token_ids=ids, context_tokens=model.context_tokens, token_texts=texts
        )

    async def Detokenize(  # type: ignore[override]  # noqa: N802
        self, request: inference_pb2.DetokenizeRequest, context: ServerCall
    ) -> inference_pb2.DetokenizeResponse:
        record = self._begin("Detokenize", context)
        context.send_head(((REQUEST_ID_KEY, identify(request_id.get())),))
        text = await self._inference.tokenization.detokenize(
            request.model, request.token_ids, record, field="token_ids"
        )
        return inference_pb2.DetokenizeResponse(text=text)

    async def ListModels(  # type: ignore[override]  # noqa: N802
        self,
        request: inference_pb2.ListModelsRequest,  # noqa: ARG002 - it has no fields yet
        context: ServerCall,
    ) -> inference_pb2.ListModelsResponse:
        who = self._begin("ListModels", context).principal
        registry = self._inference.registry
        may_use = partial(registry.aliases.permitted, who)
        permitted = partial(self._inference.policies.permitted, who)
        context.send_head(((REQUEST_ID_KEY, identify(request_id.get())),))
        auto = self._inference.auto_of(who)
        return inference_pb2.ListModelsResponse(
            models=[
                inference_pb2.Model(
                    name=model.name,
                    context_tokens=model.context_tokens,
                    vocab_tokens=model.vocab_tokens,
                    features=model.features,
                    created_seconds=model.created_seconds,
                    exact_continuation=model.exact_continuation,
                    adapters=adapters,
                    engine=model.engine,
                    dtype=model.dtype,
                    deterministic=model.deterministic,
                    inexact_reason=model.inexact_reason,
                    sampling_defaults=SamplingParams.from_options(
                        model.sampling_defaults
                    ).to_proto(),
                    aliases=filter(may_use, registry.aliases_of(model)),
                    state=self._inference.state_of(model),
                    request_tokens=self._inference.request_tokens(model, "", who),
                    provider="" if model.provided is None else model.owner,
                )
                for model in registry.listed()
                if (
                    adapters := [
                        one
                        for one in sorted(model.adapters)
                        if may_use(one) and permitted(model.name, one)
                    ]
                )
                or (may_use(model.name) and permitted(model.name))
            ]
            + ([] if auto is None else [_auto(auto)])
        )

    def _begin(self, method: str, context: ServerCall) -> RequestRecord:
        """Return the record of a call, with its principal.

        Raises:
            BatonError: the call is rejected.
        """
        record = begin("grpc")
        record.operation = OPERATIONS[f"/{INFERENCE}/{method}"]
        record.principal = self._authenticator.admit(self._authenticator.read(context.fields))
        record.principal.require(Scope.INFERENCE)
        return record

    def _session_admission(self, context: ServerCall) -> Callable[[], Principal]:
        """Return the check of a session's principal, called per request: its key may be revoked.

        Raises:
            BatonError: the session is rejected, which is recorded.
        """
        try:
            admit = partial(self._authenticator.admit, self._authenticator.read(context.fields))
            admit().require(Scope.INFERENCE)
        except BatonError as error:
            record = begin("grpc")
            record.operation, record.error = "session", error
            finish(record, error.code.name)
            raise
        return admit

    async def _stream(
        self,
        request: inference_pb2.GenerateRequest | inference_pb2.ChatRequest,
        context: ServerCall,
        record: RequestRecord,
        response_type: Response,
    ) -> None:
        identity = identify(request.context.request_id, request_id.get())
        with sending_head(self._inference, context, record, identity):
            asked = generation_request(request, identity, self._inference.limits.max_messages)
            generation = await self._inference.start(asked, record, context.time_remaining())
        send = context.send

        def take(events: list[Event]) -> bool:
            for event in events:
                response = response_type()
                event_to_proto(event, response)
                send(response)
            return False

        await follow_call(generation, context, take)


def _auto(auto: AutoModel) -> inference_pb2.Model:
    """Describe `auto` by the models that it may choose."""
    return inference_pb2.Model(
        name=AUTO,
        context_tokens=auto.context_tokens,
        created_seconds=auto.created_seconds,
        state=auto.state,
        request_tokens=auto.request_tokens,
        targets=auto.names,
    )
