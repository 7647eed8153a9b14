"""The headers by which an upstream's API knows its version and the caller."""

from baton.tenancy.records.providers import OLD_ANTHROPIC, Provider

_VERSION = "2026-10-21"


def api_headers(provider: Provider, key: str) -> dict[str, str]:
    """Return the headers of a request, as the API's own client of that version sends them.

    Args:
        provider: whose upstream it is.
        key: the key; empty: none.
    """
    if provider.api == "anthropic" and OLD_ANTHROPIC in provider.quirks:
        return {"anthropic-version": OLD_ANTHROPIC} | ({"x-api-key": key} if key else {})
    version = {"anthropic-version": _VERSION} if provider.api == "anthropic" else {}
    return version | ({"authorization": f"Bearer {key}"} if key else {})
