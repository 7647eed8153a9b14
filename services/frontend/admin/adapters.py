"""Adapters of the cluster by paths of vLLM: they are loaded into all workers, and unloaded."""

import asyncio
import os.path
from collections.abc import Sequence

import msgspec

from baton.errors import BatonError, Reason, invalid_field
from baton.models.adapters.register import register
from baton.tenancy.admin.adapters import AdapterAdministration
from baton.tenancy.records.adapters import check_location, is_below
from baton.tenancy.records.store import invalid_record
from services.frontend.admin.bodies import read
from services.frontend.admin.call import AdminCall
from services.frontend.admin.objects import RawBody

_POLL_SECONDS = 0.05
_SERVED_SECONDS = 3.0
"""How long a load waits for the first worker to have verified the adapter."""


class LoadAdapter(msgspec.Struct, forbid_unknown_fields=True):
    lora_name: str
    lora_path: str
    load_inplace: bool = False
    base_model_name: str | None = None


class UnloadAdapter(msgspec.Struct, forbid_unknown_fields=True):
    lora_name: str
    lora_int_id: int | None = None


async def load_adapter(call: AdminCall) -> RawBody:
    """Add an adapter to all workers of a model, as `baton adapters add`; `load_inplace` replaces
    one of its name. The response is sent once a worker has verified it."""
    body = read(LoadAdapter, call.body)
    await _check_allowed(body.lora_path, call.organizations.adapter_locations)
    admin = call.organizations.adapters(call.who)
    base = body.base_model_name or await _only_base(admin)
    try:
        record = await register(
            admin, body.lora_name, base, body.lora_path, replace=body.load_inplace
        )
    except BatonError as error:
        raise _renamed(error) from error
    try:
        async with asyncio.timeout(_SERVED_SECONDS):
            while not (await admin.serving()).get((record.id, record.digest)):  # noqa: ASYNC110
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        raise BatonError(
            Reason.UNAVAILABLE,
            f"adapter {record.id!r} is registered, and no worker of {base!r} has verified it yet",
            retry_after=1.0,
        ) from None
    return _text(f"Success: LoRA adapter '{record.id}' added successfully.")


async def unload_adapter(call: AdminCall) -> RawBody:
    """Remove an adapter from all workers: running requests end, and new ones are rejected."""
    body = read(UnloadAdapter, call.body)
    admin = call.organizations.adapters(call.who)
    try:
        known = await admin.get(body.lora_name)
        await _check_allowed(known.location, call.organizations.adapter_locations)
        await admin.remove(body.lora_name)
    except BatonError as error:
        raise _renamed(error) from error
    return _text(f"Success: LoRA adapter '{body.lora_name}' removed successfully.")


async def _check_allowed(location: str, allowed: Sequence[str]) -> None:
    """Check that a location is below an allowed one; of directories also where links lead.

    Raises:
        BatonError: PERMISSION_DENIED, INVALID_FIELD.
    """
    try:
        check_location(location)
    except ValueError as error:
        raise _renamed(invalid_record(error)) from None
    if _is_below(location, allowed):
        if "://" in location:
            return
        real = await asyncio.to_thread(os.path.realpath, location)
        directories = [one for one in allowed if "://" not in one]
        if _is_below(real, [await asyncio.to_thread(os.path.realpath, one) for one in directories]):
            return
    why = "it is not below one of adapters.allowed_locations"
    if not allowed:
        why = "adapters.allowed_locations is empty: set it, or use `baton adapters`"
    raise BatonError(
        Reason.PERMISSION_DENIED,
        f"lora_path: {location[:200]!r} is not allowed: {why}",
        field="lora_path",
    )


def _is_below(location: str, places: Sequence[str]) -> bool:
    return any(is_below(location, one) for one in places)


async def _only_base(admin: AdapterAdministration) -> str:
    """Return the only model whose workers load adapters.

    Raises:
        BatonError: INVALID_FIELD: there are none, or several.
    """
    found = await admin.bases()
    if len(found) != 1:
        listed = ", ".join(found) or "none"
        raise invalid_field(
            "base_model_name", f"must name the model; models with workers that adapt it: {listed}"
        )
    return found[0]


_FIELDS = {"adapter": "lora_name", "location": "lora_path", "base": "base_model_name"}


def _renamed(error: BatonError) -> BatonError:
    """Return an error with the field as it is named here."""
    field = error.field or ""
    if field not in _FIELDS:
        return error
    text = error.message.removeprefix(f"{field}: ")
    return BatonError(error.reason, f"{_FIELDS[field]}: {text}", field=_FIELDS[field])


def _text(sentence: str) -> RawBody:
    return RawBody(sentence.encode(), b"text/plain; charset=utf-8")
