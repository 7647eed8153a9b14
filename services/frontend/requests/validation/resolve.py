"""The last step of validation: combine a checked request and its tokens into the one that runs."""

from msgspec.structs import replace

from baton import sampling
from baton.errors import invalid_field
from baton.tenancy.directory.principal import Principal
from baton.v1 import common_pb2
from services.frontend.models.model import ResolvedModel
from services.frontend.output.formats import AnswerReader
from services.frontend.requests.context import RequestContextLimit
from services.frontend.requests.request import EncodedPrompt, GenerationRequest, ResolvedRequest
from services.frontend.requests.validation.prompts import too_long


def resolve(
    request: GenerationRequest,
    found: ResolvedModel,
    encoded: EncodedPrompt,
    seed: int,
    principal: Principal,
    context: RequestContextLimit | None = None,
    most_tokens: int | None = None,
    reader: AnswerReader | None = None,
) -> ResolvedRequest:
    """Return the request that runs, from a checked one.

    Args:
        request: the client's request, after `check` and `check_model`, with its whole grammar.
        found: the model that it names, and the adapter.
        encoded: its prompt's tokens and pictures.
        seed: the seed of its sampling: the request's own, or a random one.
        principal: the caller.
        context: the most tokens of prompt and output; None: the model's context.
        most_tokens: the most tokens of prompt and all outputs if the request sets no maximum: as
            many as limits allow at once; None: any number.
        reader: parses its outputs; None: outputs are plain text.

    Raises:
        BatonError: the prompt is empty, is too long, leaves less space than max_tokens requires, or
            has an id outside the vocabulary.
    """
    model, prompt = found.model, encoded.ids
    context = context or RequestContextLimit.of(model, None)
    field = request.prompt.field
    if not prompt:
        raise invalid_field(field, "the prompt has no tokens; at least one is required")
    room = context.tokens - len(prompt)
    if room < 1:  # also for a request without output: a worker samples one token
        raise too_long(request.prompt, context, str(len(prompt)))
    try:
        sampling.check_token_ids(field, prompt, model.vocab_tokens)
    except sampling.InvalidParameterError as error:
        raise invalid_field(error.field, str(error)) from None
    params, resume = request.sampling, request.resume
    max_tokens = params.max_tokens
    if max_tokens is None:
        max_tokens = min(room, model.sampling_defaults.get("max_tokens", room))
        if request.most_output is not None:
            max_tokens = min(max_tokens, request.most_output)
        if most_tokens is not None:
            most = most_tokens // request.prompt_count - len(prompt)
            max_tokens = max(1, min(max_tokens, most // request.n))
    if max_tokens > room:
        name = request.names.get("max_tokens", "max_tokens")
        raise context.exceeded(
            f"However, you requested {len(prompt) + max_tokens} tokens: {len(prompt)} in the "
            f"{field} and {max_tokens} for the output. {name} can be at most "
            f"{room}; omit it to use all",
            name,
        )
    if resume is not None and len(resume.output_ids) > max_tokens:
        raise invalid_field(  # a limit was lowered in the meantime
            "resume.output_ids",
            f"{len(resume.output_ids)} tokens exceed the output limit of {max_tokens}",
        )
    resolved = replace(
        params,
        seed=seed,
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
        # The client that resumes already has them.
        prompt_logprobs=None if resume is not None else params.prompt_logprobs,
        output_so_far=() if resume is None else tuple(resume.output_ids),
        counts_so_far=resume is not None and resume.counted,
        plainly_greedy=sampling.is_plainly_greedy(params, request.n),
        adapter_digest=found.adapter_digest,
        pictures=encoded.pictures,
        dropped=encoded.dropped,
        urgent=request.urgent,
    )
