"""Take what is compiled where it is, and what does the same where it is not."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from baton.compiled.library import Library

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CompiledChoice(Generic[T]):
    """What was taken."""

    taken: T
    reason: str = ""
    """Why it is not the compiled one, for people. Empty: it is."""


def choose(
    library: Library, load: Callable[[Path], T], otherwise: Callable[[], T]
) -> CompiledChoice[T]:
    """Return what is compiled, or what does without.

    Args:
        library: to look for.
        load: loads it from its path; raises OSError where it was compiled for another system.
        otherwise: makes what does the same.
    """
    if (found := library.find()) is None:
        return CompiledChoice(otherwise(), library.why_absent())
    try:
        return CompiledChoice(load(found))
    except OSError as error:
        return CompiledChoice(otherwise(), f"{found} cannot be loaded: {error}")
