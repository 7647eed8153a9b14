"""The body of `/v1/responses/compact`."""

from typing import Any

import msgspec

from services.frontend.http.json_body import decode_body
from services.frontend.openai.request.schema import BatonOptions
from services.frontend.openai.request.shape import strict, with_others
from services.frontend.openai.responses.compaction.fields import COMPACT_FIELDS
from services.frontend.openai.responses.input.item_types import COMPACTION
from services.frontend.openai.responses.schema import ResponseBody


class CompactBody(msgspec.Struct, kw_only=True):
    model: str | None = None
    input: str | list[Any] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    # Baton's, as responses have them.
    timeout_seconds: float | None = None
    baton: BatonOptions | None = None
    tenant: str | None = None


_ANY = with_others(CompactBody, COMPACT_FIELDS)
COMPACT = strict(_ANY)
"""A body with fields of the table only."""
_decoders = (msgspec.json.Decoder(COMPACT), msgspec.json.Decoder(_ANY))
"""Without and with fields that are not known."""


def read_compact(data: bytes, *, unknown: bool = False) -> ResponseBody:
    """Return the response, stored nowhere, whose prompt a summary is written of.

    Args:
        data: the body.
        unknown: whether fields that are not known are ignored.

    Raises:
        BatonError: it is no JSON, a type is wrong, or a field is not known.
    """
    body: CompactBody = decode_body(_decoders[unknown], data)
    fields = {name: getattr(body, name) for name in CompactBody.__struct_fields__}
    return ResponseBody(**fields, store=False, context_management=[{"type": COMPACTION}])
