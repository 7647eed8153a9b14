"""Value types shared by settings, with their syntax in flags and the environment."""

import ipaddress
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ByteSize,
    Field,
    JsonValue,
    SecretStr,
    StringConstraints,
    TypeAdapter,
)

from baton.host.networks import PUBLIC
from baton.request.limits import MAX_ADAPTERS
from baton.request.prices import ANY_MODEL, Price, parse_name
from baton.settings.transports import GRPC, PEER_TRANSPORTS, TRANSPORTS

HOLDS_SECRET = "holds_secret"
"""Type of the error for a value that must not contain a secret: the value is not shown."""
MAX_CORE = 4095
TIERS = ("free", "pro", "enterprise")
"""Service tiers of tenants."""
MODEL_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}(/[A-Za-z0-9._-]{1,96})?"
"""Pattern of the names of models and adapters."""

_BYTE_SIZE = TypeAdapter(ByteSize)

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s,]+")


def _bytes(value: object) -> int:
    return int(_BYTE_SIZE.validate_python(value))


def _comma_list(value: object) -> object:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def _locations(value: tuple[str, ...]) -> tuple[str, ...]:
    for one in value:
        scheme, url, rest = one.partition("://")
        host = rest.partition("/")[0]
        path = PurePosixPath(rest if url else one)
        if ".." in path.parts or not (scheme and host if url else path.is_absolute()):
            raise ValueError(f"{one!r} is not an absolute path or a URL, without `..`")
    return value


def _json_object(value: object) -> object:
    if not isinstance(value, str):
        return value
    if not value.strip():
        return {}
    try:
        return json.loads(value)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error}") from None


def _networks(value: tuple[str, ...]) -> tuple[str, ...]:
    for network in value:
        if network == PUBLIC:
            continue
        try:
            ipaddress.ip_network(network)
        except ValueError:
            raise ValueError(
                f"{network!r} is not a network such as 10.0.0.0/8, or {PUBLIC}"
            ) from None
    return value


def _each_endpoint(value: tuple[str, ...]) -> tuple[str, ...]:
    for endpoint in value:
        host, _, port = endpoint.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"{endpoint!r} is not host:port")
    return value


def _endpoints(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value:
        raise ValueError("must have at least one host:port")
    return _each_endpoint(value)


def _origins(value: tuple[str, ...]) -> tuple[str, ...]:
    for origin in value:
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise ValueError(
                f"{origin!r} is not an origin, for example https://chat.example.org, or *"
            )
    return value


def _some_of(names: tuple[str, ...]) -> AfterValidator:
    def check(value: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [name for name in value if name not in names]
        if unknown or not value:
            raise ValueError(
                f"must be some of {', '.join(names)}, not {','.join(unknown) or 'none'}"
            )
        return value

    return AfterValidator(check)


def _with_grpc(value: tuple[str, ...]) -> tuple[str, ...]:
    if GRPC not in value:
        raise ValueError(f"must include {GRPC}: the other transports fall back to it")
    return value


def _cores(value: object) -> object:
    if not isinstance(value, str):
        return value
    cores: set[int] = set()
    for part in filter(None, (part.strip() for part in value.split(","))):
        first, dash, last = part.partition("-")
        if not all(end.isascii() and end.isdigit() for end in (first, last if dash else first)):
            raise ValueError(f"{part!r} is not a core number or a range, for example 0-3")
        begin, end = int(first), int(last or first)
        if not begin <= end <= MAX_CORE:
            raise ValueError(f"{part!r} is not a range within 0-{MAX_CORE}")
        cores.update(range(begin, end + 1))
    return tuple(sorted(cores))


def _tenant_bytes(value: object) -> object:
    if not isinstance(value, str):
        return value
    quotas = {}
    for part in _parts(value):
        name, found, size = part.rpartition("=")
        if not found or not name:
            raise ValueError(f"{part!r} is not name=bytes")
        quotas[name] = size
    return quotas


def _tier_numbers(value: object) -> object:
    if not isinstance(value, str):
        return value
    numbers = {}
    for part in _parts(value):
        name, found, number = part.partition("=")
        if not found:
            raise ValueError(f"{part!r} is not tier=number")
        if name.strip() in numbers:
            raise ValueError(f"{name.strip()!r} is set twice")
        numbers[name.strip()] = number
    return numbers


def _tiers_of(defaults: Mapping[str, float], most: float = math.inf) -> tuple[object, ...]:
    """Return the validators of a number per tier; tiers not named have their defaults."""

    def complete(value: dict[str, float]) -> dict[str, float]:
        for name in value:
            if name not in defaults:
                raise ValueError(f"{name!r} is not a tier: {', '.join(defaults)}")
        numbers = {**defaults, **value}
        if (total := math.fsum(numbers.values())) > most:
            raise ValueError(f"the values add up to {total:g}: at most {most:g}")
        if total == most and (none := [name for name, number in numbers.items() if not number]):
            raise ValueError(
                f"the values add up to {most:g}, which leaves nothing for {' and '.join(none)}: "
                f"less than {most:g} in sum, or above 0 for each"
            )
        return numbers

    return BeforeValidator(_tier_numbers), AfterValidator(complete)


def _adapters(value: object) -> object:
    if not isinstance(value, str):
        return value
    directories: dict[str, str] = {}
    for part in _parts(value):
        name, _, directory = part.partition("=")
        if not name or not directory:
            raise ValueError(f"{part!r} is not name=directory")
        if name in directories:
            raise ValueError(f"{name!r} is set twice")
        directories[name] = directory
    return directories


def _prices(value: object) -> object:
    if isinstance(value, str):
        pairs: list[tuple[str, object]] = []
        for part in _parts(value):
            name, found, price = part.partition("=")
            if not found:
                raise ValueError(f"{part!r} is not model=input/cached input/output")
            pairs.append((name.strip(), price))
    elif isinstance(value, dict):
        pairs = list(value.items())
    else:
        return value
    prices: dict[str, Price] = {}
    for name, written in pairs:
        if name in prices:
            raise ValueError(f"{name!r} is set twice")
        model, tier, _ = parse_name(name)
        if model != ANY_MODEL and not re.fullmatch(MODEL_NAME, model):
            raise ValueError(f"{model!r} is not a model name")
        if tier not in ("", *TIERS):
            raise ValueError(f"{tier!r} is not a tier: {', '.join(TIERS)}")
        if not isinstance(written, (str, Price)):
            raise ValueError(
                f"{name} is {written!r}: it must be a string, for example 0.10/0.025/0.40"
            )
        prices[name] = Price.parse(written) if isinstance(written, str) else written
    return prices


def _parts(value: str) -> Iterator[str]:
    return filter(None, (part.strip() for part in value.split(",")))


def parse_headers(value: str) -> dict[str, str]:
    """Return the headers of a `name=value,…` text.

    Raises:
        ValueError: a part is not `name=value`; the text shows no value.
    """
    headers = {}
    for number, part in enumerate(filter(None, map(str.strip, value.split(","))), 1):
        name, found, text = part.partition("=")
        name, text = name.strip().lower(), text.strip()
        if not found or not re.fullmatch(r"[a-z0-9_.-]+", name) or not text.isprintable():
            raise ValueError(f"header {number} is not name=value")
        headers[name] = text
    return headers


def _headers(value: SecretStr) -> SecretStr:
    parse_headers(value.get_secret_value())
    return value


Bytes = Annotated[int, BeforeValidator(_bytes)]
"""A number of bytes: `1048576`, `512MiB`, `1GiB`."""

Cores = Annotated[tuple[int, ...], BeforeValidator(_cores)]
"""Numbers of processor cores and ranges of them, separated by commas: `0,2-3`."""

Endpoints = Annotated[tuple[str, ...], BeforeValidator(_comma_list), AfterValidator(_endpoints)]
"""`host:port` values separated by commas, at least one."""

SomeEndpoints = Annotated[
    tuple[str, ...], BeforeValidator(_comma_list), AfterValidator(_each_endpoint)
]
"""`host:port` values separated by commas, or none."""

Origins = Annotated[tuple[str, ...], BeforeValidator(_comma_list), AfterValidator(_origins)]
"""Origins of web pages, `scheme://host[:port]`, separated by commas; `*` is any."""

Networks = Annotated[tuple[str, ...], BeforeValidator(_comma_list), AfterValidator(_networks)]
"""IP networks, and `public`, separated by commas."""

Locations = Annotated[tuple[str, ...], BeforeValidator(_comma_list), AfterValidator(_locations)]
"""Absolute paths of directories, and beginnings of URLs, separated by commas, or none."""

Names = Annotated[tuple[str, ...], BeforeValidator(_comma_list)]
"""Texts separated by commas, or none."""

Transports = Annotated[tuple[str, ...], BeforeValidator(_comma_list), _some_of(TRANSPORTS)]
"""Names of KV transports separated by commas, at least one."""

OtlpHeaders = Annotated[SecretStr, AfterValidator(_headers)]
"""`name=value` pairs separated by commas; a secret."""

JsonTable = Annotated[dict[str, JsonValue], BeforeValidator(_json_object)]
"""A JSON object."""

TenantBytes = Annotated[dict[str, Bytes], BeforeValidator(_tenant_bytes)]
"""`name=bytes` pairs separated by commas."""

TIER_WEIGHTS: Mapping[str, float] = {"enterprise": 16.0, "pro": 4.0, "free": 1.0}
TIER_FLOORS: Mapping[str, float] = {"enterprise": 0.5, "pro": 0.1, "free": 0.04}
TierWeights = Annotated[
    dict[str, Annotated[float, Field(ge=0.001, le=1e6)]], *_tiers_of(TIER_WEIGHTS)
]
"""`tier=weight` pairs separated by commas."""
TierFloors = Annotated[dict[str, Annotated[float, Field(ge=0, le=1)]], *_tiers_of(TIER_FLOORS, 1.0)]
"""`tier=share` pairs separated by commas."""

Adapters = Annotated[
    dict[Annotated[str, StringConstraints(pattern=f"^{MODEL_NAME}$")], Path],
    BeforeValidator(_adapters),
    Field(max_length=MAX_ADAPTERS),
]
"""`name=directory` pairs separated by commas."""

Prices = Annotated[dict[str, Price], BeforeValidator(_prices)]
"""`model[@tier][+batch]=input/cached input/output` separated by commas."""

PeerTransports = Annotated[
    tuple[str, ...],
    BeforeValidator(_comma_list),
    _some_of(PEER_TRANSPORTS),
    AfterValidator(_with_grpc),
]
"""Names of KV transports between stores separated by commas, grpc among them."""

Port = Annotated[int, Field(ge=0, le=65535)]
"""A TCP port; 0 takes a free one."""
