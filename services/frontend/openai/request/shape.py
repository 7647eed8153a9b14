"""Types of bodies with the fields that are not served, from a table of fields."""

from collections.abc import Sequence
from typing import Any, TypeVar, cast

import msgspec

from services.frontend.openai.request.field import Field, Treatment

B = TypeVar("B", bound=msgspec.Struct)


def unserved(fields: Sequence[Field]) -> list[Field]:
    """Return the fields that are ignored or not supported."""
    return [each for each in fields if each.treatment is not Treatment.SERVED]


def refused(fields: Sequence[Field]) -> list[Field]:
    """Return the fields that are not supported."""
    return [each for each in fields if each.treatment is Treatment.REFUSED]


def with_others(base: type[B], fields: Sequence[Field]) -> type[B]:
    """Return a body with the fields that are not served, of any type."""
    others = [(each.name, Any, None) for each in unserved(fields)]
    made = msgspec.defstruct(base.__name__, others, bases=(base,), kw_only=True)
    return cast("type[B]", made)


def strict(base: type[B]) -> type[B]:
    """Return the body that has no field besides."""
    name = base.__name__
    made = msgspec.defstruct(name, [], bases=(base,), kw_only=True, forbid_unknown_fields=True)
    return cast("type[B]", made)
