"""The last pass over a body but for prompts: its parameters."""

import re
from collections.abc import Mapping
from typing import Any

from baton.errors import invalid_field
from baton.sampling import PARAMETERS, SamplingParams
from services.frontend.openai.request.response_format import Form
from services.frontend.openai.request.schema import Common
from services.frontend.requests.request import Fallback, PromptOptions

_TOKEN_ID = re.compile(r"-?[0-9]{1,18}")


def parameters(body: Common, form: Form, names: Mapping[str, str], **other: Any) -> dict[str, Any]:
    """Return the parameters of a body, which it says, and what it calls them, by the names of
    `GenerationRequest`.

    Args:
        body: what was sent.
        form: of the output, as the pass before found it.
        names: what it calls fields that have another name here.
        other: parameters that it has in another shape.

    Raises:
        BatonError: INVALID_FIELD, a key of logit_bias is no token id, or a form is neither strict
            nor not.
    """
    if form.grammar is not None:
        names = {**names, "grammar": form.field}
        other["grammar"] = form.grammar
    given = {each.name: getattr(body, each.name, None) for each in PARAMETERS} | other
    if body.logit_bias is not None:
        given["logit_bias"] = {
            _token_id(key): value for key, value in body.logit_bias.items() if value
        }
    if not isinstance(form.strict, bool):
        raise invalid_field("response_format.json_schema.strict", "must be true or false")
    return {
        "sampling": SamplingParams.from_vllm_options(given),
        "given": frozenset(name for name, value in given.items() if value is not None),
        "strict_form": form.strict,
        "names": names,
        "fallback": Fallback((body.baton and body.baton.fallback) or ""),
        "prompt_options": PromptOptions(
            add_special_tokens=body.add_special_tokens,
            truncate_tokens=body.truncate_prompt_tokens,
            keep_first=body.truncation_side == "right",
        ),
    }


def _token_id(key: str) -> int:
    if not _TOKEN_ID.fullmatch(key):
        raise invalid_field("logit_bias", f"{key[:64]!r} is not a token id")
    return int(key)
