"""The description of a family of models."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from services.frontend.output.lexer import LexerState


def long_id(digest: str) -> str:
    """Return the id of a call in OpenAI's format."""
    return f"call_{digest[:24]}"


def short_id(digest: str) -> str:
    """Return the id of a call in nine letters and digits, as required by Mistral's templates."""
    return digest[:9]


@dataclass(frozen=True, slots=True)
class CallForm:
    """How a model of a family writes its calls, for grammars. `{name}` is the tool's name."""

    head: str
    """Text before the arguments."""
    tail: str
    """Text after the arguments."""
    between: str
    """Text between two calls."""
    tag: str = ""
    """Text before the first call that never occurs elsewhere; empty: an output begins as a call."""
    opening: tuple[str, ...] = ("",)
    """One of these follows the tag."""
    close: str = ""
    """Text after the last call."""
    optional_tag: str = ""
    """A special token that may precede the first call."""
    xml: bool = False
    """Whether arguments are parameters in XML, not JSON."""


@dataclass(frozen=True, slots=True)
class Family:
    """How models of one family write calls."""

    name: str
    states: Mapping[str, LexerState]
    form: CallForm | None = None
    """None: it does not write calls."""
    start: str = "text"
    make_id: Callable[[str], str] = long_id
    """Makes a call's id from a hexadecimal digest."""
