"""What there is to know of a family."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from services.frontend.output.lexer import LexerState


def long_id(digest: str) -> str:
    """Return the id of a call as OpenAI writes them."""
    return f"call_{digest[:24]}"


def short_id(digest: str) -> str:
    """Return the id of a call in nine letters and digits, which Mistral's templates need."""
    return digest[:9]


@dataclass(frozen=True, slots=True)
class CallForm:
    """How a model of a family writes its calls, for grammars. `{name}` is the tool's."""

    head: str
    """Before the arguments."""
    tail: str
    """After them."""
    between: str
    """Between two calls."""
    tag: str = ""
    """Before the first call, and nowhere in text; empty: an answer that begins as a call is one."""
    opening: tuple[str, ...] = ("",)
    """After the tag, one of these."""
    close: str = ""
    """After the last call."""
    optional_tag: str = ""
    """A special token that may come before the first call."""
    xml: bool = False
    """Arguments are parameters in XML, not JSON."""


@dataclass(frozen=True, slots=True)
class Family:
    """How models of one family write calls."""

    name: str
    states: Mapping[str, LexerState]
    form: CallForm | None = None
    """None: it writes no calls."""
    start: str = "text"
    make_id: Callable[[str], str] = long_id
    """Makes a call's id of a hexadecimal digest."""
