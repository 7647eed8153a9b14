"""API key that a client sends with every call."""

import os
from collections.abc import Callable
from typing import Any

API_KEY_ENV = "BATON_API_KEY"
Metadata = tuple[tuple[str, str], ...]


def api_key_of(given: str | None) -> str:
    """Return the API key to send: the given one, or that of BATON_API_KEY; empty: none."""
    return os.environ.get(API_KEY_ENV, "") if given is None else given


def authorized(stub: Any, api_key: str) -> Any:
    """Return a generated stub whose calls carry the API key; the stub itself if there is
    none.
    """
    return AuthorizedStub(stub, api_key) if api_key else stub


class AuthorizedStub:
    """Wraps a generated stub and adds an API key to the metadata of each call."""

    def __init__(self, stub: Any, api_key: str) -> None:
        """Carry `api_key` on the calls of `stub`."""
        authorization = (("authorization", f"Bearer {api_key}"),)
        for method, rpc in vars(stub).items():
            setattr(self, method, _with_metadata(rpc, authorization))


def _with_metadata(rpc: Callable[..., Any], more: Metadata) -> Callable[..., Any]:
    def call(*arguments: Any, metadata: Metadata = (), **options: Any) -> Any:
        return rpc(*arguments, metadata=(*metadata, *more), **options)

    return call
