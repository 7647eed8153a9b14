"""Providers: other operators' models, served under names of this cluster; one record each."""

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

import msgspec

from baton.request.prices import Price
from baton.settings.values import MODEL_NAME

APIS = ("openai", "anthropic")
"""OpenAI's chat completions, as many others serve them too, and Anthropic's Messages."""
OLD_ANTHROPIC = "2023-06-01"
QUIRKS = {
    "max_tokens": "takes `max_tokens`, not `max_completion_tokens`",
    "no_stream_options": "does not take `stream_options`, and reports no usage",
    OLD_ANTHROPIC: "has that version of Anthropic's API, with `temperature`, `top_p` and `top_k`",
}
"""Differences of an upstream, by name. `drop:FIELD` leaves out a parameter that it does not take,
`takes:FIELD` sends one that its API does not have."""
MAX_PROVIDERS = 64
MAX_MODELS = 256
MAX_KEYS = 8
MAX_CONTEXT_TOKENS = 100_000_000
MAX_SECONDS = 3600
MAX_CONNECTIONS = 4096
_MODEL = re.compile(MODEL_NAME)
_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_UPSTREAM = re.compile(r"[!-~]{1,256}")
_KEY = re.compile(r"file:/[!-~]{1,1023}|env:[A-Z][A-Z0-9_]{0,120}_KEY")
_FIELD_QUIRK = re.compile(r"(drop|takes):[a-z_]{1,64}")


class ProviderModel(msgspec.Struct, omit_defaults=True, kw_only=True, frozen=True, gc=False):
    """A model of a provider."""

    name: str
    """The name in requests."""
    upstream: str = ""
    """Its name at the provider; empty: the same."""
    context_tokens: int
    """The most tokens of prompt and output together."""
    output_tokens: int
    """The most output tokens, and the default of requests that set no maximum."""
    price: str = ""
    """Dollars per million tokens, as in `usage.prices`, which comes first; empty: none."""

    hedge: str = ""
    """A model of another provider, which callers that pay ask too if the first token is late;
    empty: none."""

    @property
    def upstream_name(self) -> str:
        """Its name at the provider."""
        return self.upstream or self.name


class Provider(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """An upstream and its models."""

    id: str
    api: str = "openai"
    """One of APIS."""
    url: str = ""
    """What the API's paths follow: `https://api.openai.com/v1`."""
    keys: tuple[str, ...] = ()
    """References to its API keys, `file:/PATH` or `env:NAME`, which frontends read; none: it wants
    no key. The keys themselves are never in a record."""
    models: tuple[ProviderModel, ...] = ()
    """None: the provider was removed."""
    quirks: tuple[str, ...] = ()
    http: bool = False
    """Whether `url` may be http://, within the networks that frontends' settings name."""
    first_token_seconds: float = 60.0
    """The longest time to the first token, retries included."""
    token_seconds: float = 30.0
    """The longest time between two tokens."""
    connections: int = 256
    """The most connections of a frontend."""
    created_seconds: int = 0
    version: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its models."""
        return tuple(model.name for model in self.models)

    def fields_of(self, quirk: str) -> frozenset[str]:
        """Return the fields of all quirks `drop:FIELD`, or `takes:FIELD`."""
        prefix = f"{quirk}:"
        return frozenset(one.removeprefix(prefix) for one in self.quirks if one.startswith(prefix))


def check_provider(record: Provider) -> None:
    """Check a record's values.

    Raises:
        ValueError: the first invalid field, and its allowed values.
    """
    if not _ID.fullmatch(record.id):
        raise ValueError(
            f"provider: {record.id[:64]!r} is not a name: lower-case letters, digits and hyphens"
        )
    if not record.models:
        return
    if record.api not in APIS:
        raise ValueError(f"api: {record.api[:64]!r} is not {' or '.join(APIS)}")
    _check_url(record)
    if len(record.keys) > MAX_KEYS:
        raise ValueError(f"keys: {len(record.keys)} entries exceed the limit of {MAX_KEYS}")
    for key in record.keys:
        if not _KEY.fullmatch(key):
            raise ValueError(
                "keys: a reference is file:/PATH or env:NAME, where the variable's name ends in "
                "_KEY; the key itself cannot be stored"
            )
    for quirk in record.quirks:
        if quirk not in QUIRKS and not _FIELD_QUIRK.fullmatch(quirk):
            known = ", ".join((*QUIRKS, "drop:FIELD", "takes:FIELD"))
            raise ValueError(f"quirks: {quirk[:64]!r} is not one of {known}")
    for field in ("first_token_seconds", "token_seconds"):
        if not 0 < getattr(record, field) <= MAX_SECONDS:
            raise ValueError(f"{field}: must be above 0 and at most {MAX_SECONDS}")
    if not 1 <= record.connections <= MAX_CONNECTIONS:
        raise ValueError(f"connections: must be 1 to {MAX_CONNECTIONS}")
    if len(record.models) > MAX_MODELS:
        raise ValueError(f"models: {len(record.models)} entries exceed the limit of {MAX_MODELS}")
    for model in record.models:
        _check_model(model)
    if len(set(record.names)) < len(record.models):
        raise ValueError("models: each name can be used once")


def check_provider_with_others(record: Provider, others: Iterable[Provider]) -> None:
    """Check that no two providers have models of one name.

    Raises:
        ValueError: the field and the other provider.
    """
    others = [one for one in others if one.models and one.id != record.id]
    if record.models and len(others) >= MAX_PROVIDERS:
        raise ValueError(f"provider: there are {len(others)} providers: at most {MAX_PROVIDERS}")
    for other in others:
        for name in set(record.names) & set(other.names):
            raise ValueError(f"models: {name} is a model of the provider {other.id}")
    known = {model.name: model for other in others for model in other.models}
    for model in record.models:
        if model.hedge:
            _check_hedge(model, known.get(model.hedge))


def _check_hedge(model: ProviderModel, other: ProviderModel | None) -> None:
    if other is None:
        raise ValueError(
            f"models: hedge of {model.name}: {model.hedge[:64]!r} is no model of another provider"
        )
    if other.context_tokens < model.context_tokens or other.output_tokens < model.output_tokens:
        raise ValueError(
            f"models: hedge of {model.name}: {other.name} has a smaller context or output"
        )


def _check_url(record: Provider) -> None:
    try:
        parts = urlsplit(record.url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not (host and _UPSTREAM.fullmatch(record.url)) or parts.scheme not in ("https", "http"):
        raise ValueError("url: must be https://HOST[:PORT][/PATH]")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("url: cannot have a user, a password, a query or a fragment")
    if parts.scheme == "http" and not record.http:
        raise ValueError(
            "url: http:// sends prompts and keys unencrypted: use https://, or allow it with "
            "--http for a network of your own"
        )


def _check_model(model: ProviderModel) -> None:
    if not _MODEL.fullmatch(model.name):
        raise ValueError(f"models: {model.name[:64]!r} is not the name of a model")
    if model.upstream and not _UPSTREAM.fullmatch(model.upstream):
        raise ValueError(f"models: the upstream's name of {model.name} is not printable ASCII")
    if not 2 <= model.context_tokens <= MAX_CONTEXT_TOKENS:
        raise ValueError(f"models: context of {model.name} must be 2 to {MAX_CONTEXT_TOKENS}")
    if not 1 <= model.output_tokens < model.context_tokens:
        raise ValueError(f"models: output of {model.name} must be 1 to its context")
    if model.price:
        try:
            Price.parse(model.price)
        except ValueError as error:
            raise ValueError(f"models: price of {model.name}: {error}") from None
