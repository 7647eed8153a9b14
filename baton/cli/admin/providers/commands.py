"""Implementation of `baton providers`: changes or lists the records of providers."""

import asyncio
from typing import Any

import msgspec
from pydantic import TypeAdapter, ValidationError

from baton.cli.admin.providers.options import ProviderOptions
from baton.cli.admin.target import Target
from baton.cli.shared.errors import EXIT_FAILED, CommandError
from baton.cli.shared.table import TextTable
from baton.settings.values import Networks
from baton.tenancy.admin.providers import ProviderAdministration
from baton.tenancy.records.providers import Provider, ProviderModel

_FORM = "NAME[=UPSTREAM],context=TOKENS,output=TOKENS[,price=IN/CACHED/OUT][,hedge=MODEL]"
_MAX_DIGITS = 12


def set_provider(target: Target, name: str, options: ProviderOptions) -> None:
    """Create a provider, or replace all of it."""
    wanted = Provider(
        id=name,
        api=options.api,
        url=options.url.rstrip("/"),
        keys=tuple(options.key or ()),
        models=tuple(map(_model, options.model)),
        quirks=tuple(options.quirk or ()),
        http=options.http,
        first_token_seconds=options.first_token_seconds,
        token_seconds=options.token_seconds,
        connections=options.connections,
    )
    record = target.read(lambda etcd: ProviderAdministration(etcd, target.cluster).set(wanted))
    names = ", ".join(record.names)
    target.print(f"Provider {name} at {record.url} now serves {names}.", **_fields(record))


def remove_provider(target: Target, name: str) -> None:
    """Remove a provider."""
    target.read(lambda etcd: ProviderAdministration(etcd, target.cluster).remove(name))
    target.print(f"Removed the provider {name}.", provider=name)


def list_providers(target: Target) -> None:
    """Print the providers."""
    found = target.read(lambda etcd: ProviderAdministration(etcd, target.cluster).providers())
    table = TextTable(("provider", "api", "url", "keys", "models"))
    for one in found:
        table.add(one.id, one.api, one.url, ", ".join(one.keys), ", ".join(map(_shown, one.models)))
    target.list(table, [_fields(one) for one in found])


def check(target: Target, name: str, networks: str, seconds: float) -> None:
    """Check a provider, and print what was found.

    Raises:
        CommandError: a part failed.
    """
    from baton.host.networks import AllowedNetworks
    from baton.providers.check import check_upstream

    try:
        allowed = AllowedNetworks(TypeAdapter[tuple[str, ...]](Networks).validate_python(networks))
    except ValidationError as error:
        raise CommandError(f"--allowed-networks: {error.errors()[0]['msg']}.") from None
    record = target.read(lambda etcd: ProviderAdministration(etcd, target.cluster).get(name))
    found = asyncio.run(check_upstream(record, allowed, seconds))
    table = TextTable(("part", "ok", "result"))
    for one in found:
        table.add(one.part, "yes" if one.ok else "no", one.result)
    target.list(table, [one._asdict() for one in found])
    failed = sum(not one.ok for one in found)
    if failed:
        at = f"provider {name} of cluster {target.cluster}"
        raise CommandError(f"{failed} of {len(found)} parts of {at} failed.", EXIT_FAILED)


def _model(text: str) -> ProviderModel:
    first, *rest = text.split(",")
    name, _, upstream = first.partition("=")
    given = dict(part.partition("=")[::2] for part in rest)
    numbers = {key: given.pop(key, "") for key in ("context", "output")}
    price, hedge = given.pop("price", ""), given.pop("hedge", "")
    valid = all(one.isdecimal() and len(one) <= _MAX_DIGITS for one in numbers.values())
    if given or not valid:
        raise CommandError(f"{text!r} is not {_FORM}.")
    return ProviderModel(
        name=name,
        upstream=upstream,
        context_tokens=int(numbers["context"]),
        output_tokens=int(numbers["output"]),
        price=price,
        hedge=hedge,
    )


def _shown(model: ProviderModel) -> str:
    return model.name if not model.upstream else f"{model.name}={model.upstream}"


def _fields(record: Provider) -> dict[str, Any]:
    return {"provider": record.id, **msgspec.to_builtins(record)}
