"""The one validator: what a request may be, on gRPC and HTTP alike.

Every refusal names the field, the limit and what was given. `check` needs nothing but the request;
`check_model` and `resolve` need the model. Fields have the names of the OpenAI API.
"""

import dataclasses
import re
from collections.abc import Sequence

from msgspec.structs import replace

from baton import sampling
from baton.errors import BatonError, Reason, invalid_field
from baton.rpc.request_id import MAX_REQUEST_ID, clean_request_id
from baton.settings import FrontendLimits
from baton.tenancy.directory.principal import LOCAL, Principal
from baton.v1 import common_pb2
from services.frontend.models.model import ResolvedModel, ServedModel
from services.frontend.output.formats import AnswerReader
from services.frontend.requests.bans import check_bans
from services.frontend.requests.context import RequestContextLimit
from services.frontend.requests.refusals import too_many
from services.frontend.requests.request import (
    ChatPrompt,
    GenerationRequest,
    Prompt,
    ResolvedRequest,
    TextPrompt,
    TokenPrompt,
)
from services.frontend.requests.tools import check_calls, check_tools

ROLES = ("system", "developer", "user", "assistant", "tool")
_INT64 = 2**63 - 1
_PRIORITIES = frozenset(common_pb2.PriorityClass.values())
_SPEAKER = re.compile(r"[^\s<|\\/>]{0,64}")
"""As OpenAI has it."""


def check(request: GenerationRequest, limits: FrontendLimits, principal: Principal) -> None:
    """Check everything that does not depend on the model, but on who asks.

    Raises:
        BatonError: the first field that is wrong.
    """
    if not request.model:
        raise invalid_field("model", "is required; /v1/models lists the models")
    if request.tenant not in ("", principal.tenant.id):
        if principal is LOCAL:
            raise invalid_field("tenant", f"the only tenant is {principal.tenant.id!r}")
        raise BatonError(
            Reason.PERMISSION_DENIED,
            "tenant: the API key belongs to another tenant; omit the field",
            field="tenant",
        )
    principal.require_model(request.model, request.adapter)
    if request.execution_id and not clean_request_id(request.execution_id):
        raise invalid_field(
            request.names.get("execution_id", "execution_id"),
            f"must have at most {MAX_REQUEST_ID} printable ASCII characters and no spaces, and "
            "cannot be an API key",
        )
    if request.cache_scope not in (
        common_pb2.CACHE_SCOPE_UNSPECIFIED,
        common_pb2.CACHE_SCOPE_TENANT,
    ):
        raise invalid_field("cache_scope", "the model's policy does not allow a shared cache")
    if request.priority not in _PRIORITIES:
        raise invalid_field("priority", f"{request.priority} is not a priority class")
    _whole(request.names.get("n", "n"), request.n, 1, limits.max_choices)
    _seconds("ttft_target_seconds", request.ttft_target_seconds, limits.max_deadline_seconds)
    _seconds("timeout_seconds", request.timeout_seconds, limits.max_deadline_seconds)
    check_prompt(request.prompt, limits)
    if request.tools is not None:
        check_tools(request.tools)
    truncated = request.prompt_options.truncate_tokens
    if truncated is not None and (truncated < -1 or truncated == 0):
        raise invalid_field(
            "truncate_prompt_tokens", f"{truncated} is out of range: at least 1, or -1"
        )
    try:
        sampling.check(request.sampling, request.names)
    except sampling.InvalidParameterError as error:
        raise _invalid(error) from None
    if request.resume is not None:
        if request.n != 1:
            raise invalid_field("resume", f"requires n = 1, not {request.n}")
        _whole("resume.seed", request.resume.seed, -_INT64 - 1, _INT64)
        had, most = len(request.resume.output_ids), request.sampling.max_tokens
        if most is not None and had > most:
            raise invalid_field(
                "resume.output_ids",
                f"{had} tokens exceed max_tokens ({most})",
            )


def with_defaults(request: GenerationRequest, model: ServedModel) -> GenerationRequest:
    """Return the request with the model's own parameters where it says none."""
    missing = {
        name: value
        for name, value in model.sampling_defaults.items()
        if name not in request.given and name != "max_tokens"  # which depends on the prompt
    }
    if not missing:
        return request
    return dataclasses.replace(request, sampling=replace(request.sampling, **missing))


def check_model(request: GenerationRequest, model: ServedModel) -> None:
    """Check what depends on the model, but the prompt: token ids, and what its workers can do.

    Raises:
        BatonError: the first field that is wrong.
    """
    for field, feature in sampling.needed_features(request.sampling):
        if feature not in model.features:
            field = request.names.get(field, field)
            raise BatonError(
                Reason.UNSUPPORTED_PARAMETER,
                f"{field}: not supported by the workers of model {model.name!r}; omit it",
                field=field,
            )
    try:
        sampling.check_vocabulary(request.sampling, model.vocab_tokens)
    except sampling.InvalidParameterError as error:
        raise _invalid(error) from None
    check_bans(request.sampling, model, request.names)
    if request.resume is not None:
        if len(request.resume.output_ids) > model.context_tokens:
            raise invalid_field(
                "resume.output_ids",
                f"{len(request.resume.output_ids)} tokens exceed the model's context of "
                f"{model.context_tokens}",
            )
        _check_ids("resume.output_ids", request.resume.output_ids, model.vocab_tokens)


def resolve(
    request: GenerationRequest,
    found: ResolvedModel,
    prompt: Sequence[int],
    drawn_seed: int,
    principal: Principal,
    context: RequestContextLimit | None = None,
    most_tokens: int | None = None,
    reader: AnswerReader | None = None,
) -> ResolvedRequest:
    """Make a good request of a checked one.

    Args:
        request: what the client sent, after `check` and `check_model`.
        found: the model that it names, and the adapter.
        prompt: its prompt's tokens.
        drawn_seed: the seed to use where it has none.
        principal: who asks.
        context: the most tokens of prompt and output; None: as the model says.
        most_tokens: of prompt and all outputs, where the request does not say how many: as much as
            limits allow in one moment; None: any.
        reader: of its answers; None: they are nothing but text.

    Raises:
        BatonError: the prompt is empty, too long, leaves less room than max_tokens asks for, or
            has an id outside of the vocabulary.
    """
    model = found.model
    context = context or RequestContextLimit.of(model, None)
    field = _field(request.prompt)
    if not prompt:
        raise invalid_field(field, "the prompt has no tokens; at least one is required")
    room = context.tokens - len(prompt)
    if room < 1:  # also without an output: a worker samples one token
        raise too_long(request.prompt, context, str(len(prompt)))
    _check_ids(field, prompt, model.vocab_tokens)
    params, resume = request.sampling, request.resume
    max_tokens = params.max_tokens
    if max_tokens is None:
        max_tokens = min(room, model.sampling_defaults.get("max_tokens", room))
        if most_tokens is not None:
            most = most_tokens // request.prompt_count - len(prompt)
            max_tokens = max(1, min(max_tokens, most // request.n))
    if max_tokens > room:
        name = request.names.get("max_tokens", "max_tokens")
        raise context.exceeded(
            f"However, you requested {len(prompt) + max_tokens} tokens: {len(prompt)} in the "
            f"{_field(request.prompt)} and {max_tokens} for the output. {name} can be at most "
            f"{room}; omit it to use all",
            name,
        )
    if resume is not None and len(resume.output_ids) > max_tokens:
        raise invalid_field(  # a limit was lowered since
            "resume.output_ids",
            f"{len(resume.output_ids)} tokens exceed the output limit of {max_tokens}",
        )
    seed = params.seed if resume is None else resume.seed
    resolved = replace(
        params,
        seed=drawn_seed if seed is None else seed,
        max_tokens=max(1, max_tokens),
        min_tokens=min(params.min_tokens, max_tokens),
        stop=(),
        bad_words=(),
        bad_word_ids=(*params.bad_word_ids, *found.model.tokenizer.word_runs(params.bad_words)),
        include_stop_str_in_output=False,
        skip_special_tokens=True,
        prompt_logprobs=None,
    )
    return ResolvedRequest(
        context=common_pb2.RequestContext(
            request_id=request.request_id,
            tenant=principal.tenant.id,
            priority=common_pb2.PriorityClass.ValueType(principal.capped(request.priority)),
            model=model.name,
            adapter=found.adapter,
            cache_scope=common_pb2.CACHE_SCOPE_TENANT,
            ttft_target_seconds=request.ttft_target_seconds,
        ),
        model=model,
        prompt=prompt,
        sampling=resolved.to_proto(),
        stop=params.stop,
        n=request.n,
        reader=reader,
        no_output=max_tokens == 0,
        include_stop=params.include_stop_str_in_output,
        special_text=not params.skip_special_tokens,
        # Who resumes has them.
        prompt_logprobs=None if resume is not None else params.prompt_logprobs,
        output_so_far=() if resume is None else tuple(resume.output_ids),
        plainly_greedy=sampling.is_plainly_greedy(params, request.n),
        adapter_digest=found.adapter_digest,
    )


def check_prompt(prompt: Prompt, limits: FrontendLimits) -> None:
    """Check a prompt alone, as `check` does.

    Raises:
        BatonError: the first field that is wrong.
    """
    match prompt:
        case TextPrompt(text, suffix):
            if not (text or suffix):
                raise invalid_field("prompt", "the prompt is empty")
        case TokenPrompt(ids):
            if not ids:
                raise invalid_field("prompt", "the prompt is empty")
        case ChatPrompt(messages):
            if not messages:
                raise invalid_field("messages", "at least one message is required")
            if len(messages) > limits.max_messages:
                raise too_many("messages", len(messages), limits.max_messages)
            for index, message in enumerate(messages):
                if message.role not in ROLES:
                    raise invalid_field(
                        f"messages[{index}].role",
                        f"{message.role[:64]!r} is not a role: use {', '.join(ROLES)}",
                    )
                if not _SPEAKER.fullmatch(message.name):
                    raise invalid_field(
                        f"messages[{index}].name",
                        "must have at most 64 characters, none of them a space, <, |, \\, / or >",
                    )
            check_calls(messages)


def check_tokens(field: str, ids: Sequence[int], model: ServedModel) -> None:
    """Check token ids that are to become text; `field` is what the client calls them.

    Raises:
        BatonError: INVALID_FIELD, one is outside of the model's vocabulary.
    """
    _check_ids(field, ids, model.vocab_tokens)


def too_long(prompt: Prompt, context: RequestContextLimit, tokens: str) -> BatonError:
    """Return the error of a prompt that leaves no room for an output.

    Args:
        prompt: as it was sent.
        context: that it is longer than.
        tokens: how many the prompt has, as people read it.
    """
    field = _field(prompt)
    return context.exceeded(
        f"However, your {field} resulted in {tokens} tokens, and at least one is for the output. "
        f"Reduce the length of the {field}",
        field,
    )


def _field(prompt: Prompt) -> str:
    return "messages" if isinstance(prompt, ChatPrompt) else "prompt"


def _invalid(error: sampling.InvalidParameterError) -> BatonError:
    return invalid_field(error.field, str(error))


def _check_ids(field: str, ids: Sequence[int], vocab_tokens: int) -> None:
    try:
        sampling.check_token_ids(field, ids, vocab_tokens)
    except sampling.InvalidParameterError as error:
        raise _invalid(error) from None


def _whole(field: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise invalid_field(field, f"{value} is out of range: {low} to {high}")


def _seconds(field: str, value: float, most: float) -> None:
    if not 0 <= value <= most:
        raise invalid_field(field, f"{value} is out of range: 0 (none) to {most:g} seconds")
