"""What there is to know of a family."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from services.frontend.tools.lexer import State


def long_id(digest: str) -> str:
    """Return the id of a call as OpenAI writes them."""
    return f"call_{digest[:24]}"


def short_id(digest: str) -> str:
    """Return the id of a call in nine letters and digits, which Mistral's templates need."""
    return digest[:9]


@dataclass(frozen=True, slots=True)
class Family:
    """How models of one family write calls."""

    name: str
    states: Mapping[str, State]
    start: str = "text"
    make_id: Callable[[str], str] = long_id
    """Makes a call's id of a hexadecimal digest."""
