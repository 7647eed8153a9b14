"""`GET /v1/organization/usage/{kind}`: what requests used."""

from time import time

from baton.usage.report.question import Labels, Question, Sums
from services.frontend.admin.call import AdminCall, missing
from services.frontend.admin.objects import Object, RawBody
from services.frontend.admin.usage.asked import (
    WIDTHS,
    Asked,
    Groups,
    known,
    read,
    read_times,
)
from services.frontend.admin.usage.page import empty_page, page
from services.frontend.admin.usage.reader import encoded
from services.frontend.http.query import QueryString

COMPLETIONS = "completions"
OTHERS = frozenset(
    (
        *("audio_speeches", "audio_transcriptions", "code_interpreter_sessions", "decisions"),
        *("embeddings", "file_search_calls", "images", "moderations", "vector_stores"),
        "web_search_calls",
    )
)
"""Kinds of usage in OpenAI's API that do not occur here."""

_FILTERS = ("project_ids", "api_key_ids", "models", "batch", "user_ids")
_FILTERS_OF_OTHERS = ("context_levels", "sizes", "sources", "vector_store_ids")
_GROUPS: Groups = {
    "project_id": ("project",),
    "api_key_id": ("key",),
    "model": ("model", "adapter"),
    "batch": ("batch",),
    "service_tier": ("tier",),
}


async def usage(call: AdminCall) -> Object | RawBody:
    """Return the usage of requests in time buckets, for `completions`. Buckets of OpenAI's other
    kinds are empty."""
    kind = call.ids[0]
    if kind in OTHERS:
        query = QueryString(call.query, known(*_FILTERS, *_FILTERS_OF_OTHERS))
        times, limit, identity = read_times(query, time(), WIDTHS)
        return empty_page(Asked(times, limit, (), Question(), identity))
    if kind != COMPLETIONS:
        missing("kind of usage", kind)
    query = QueryString(call.query, known(*_FILTERS))
    asked = read(query, call.who, time(), WIDTHS, _GROUPS)
    groups = await call.organizations.usage.groups(asked.page_question())

    def make() -> Object:
        return page(asked, groups, lambda labels: _named(asked.group_by, labels), _result)

    return await encoded(make)


def _named(group_by: tuple[str, ...], labels: Labels) -> Object:
    """Return the fields that name a result; those not grouped by are null."""
    return {
        "project_id": labels.project if "project_id" in group_by else None,
        "user_id": None,
        "api_key_id": labels.key if "api_key_id" in group_by else None,
        "model": labels.name if "model" in group_by else None,
        "batch": labels.batch if "batch" in group_by else None,
        "service_tier": labels.tier if "service_tier" in group_by else None,
        "api_source": None,
    }


def _result(sums: Sums) -> Object:
    computed = sums.prompt_tokens - sums.cached_tokens
    return {
        "object": "organization.usage.completions.result",
        "input_tokens": sums.prompt_tokens,
        "input_cached_tokens": sums.cached_tokens,
        "input_uncached_tokens": computed,
        "input_text_tokens": computed,
        "input_cached_text_tokens": sums.cached_tokens,
        "input_audio_tokens": 0,
        "output_tokens": sums.output_tokens,
        "output_text_tokens": sums.output_tokens,
        "output_audio_tokens": 0,
        "num_model_requests": sums.requests,
    }
