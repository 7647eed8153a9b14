"""Register adapters: read them, check them against the cards of their model, write their record."""

import asyncio
from pathlib import Path

from baton.engine.lora.adapter import Adapter, read_adapter
from baton.engine.lora.config import AdapterError
from baton.engine.lora.limits import AdapterLimits
from baton.errors import BatonError, Reason, invalid_field
from baton.internal.v1.cluster_pb2 import ModelCard
from baton.tenancy.admin.adapters import AdapterAdministration
from baton.tenancy.records.adapters import AdapterRecord, check_location
from baton.tenancy.records.store import invalid_record


async def register(
    admin: AdapterAdministration, name: str, base: str, location: str, *, replace: bool = False
) -> AdapterRecord:
    """Register an adapter, if all workers of its model can load it.

    Args:
        admin: writes the record.
        name: the name in requests.
        base: the model that it is an adapter of.
        location: a directory in PEFT's layout, which this process and the workers can read.
        replace: replace the adapter of this name, if there is one.

    Raises:
        BatonError: INVALID_FIELD: the adapter cannot be used, and nothing was changed;
            FAILED_PRECONDITION: a library is not installed; ABORTED.
        EtcdError: etcd is unavailable.
    """
    try:
        check_location(location)
    except ValueError as error:
        raise invalid_record(error) from None
    limits = [_limits(card) for card in await admin.cards(base)]
    try:
        found = [await asyncio.to_thread(read_adapter, name, Path(location), one) for one in limits]
    except AdapterError as error:
        raise invalid_field("location", str(error)) from error
    except ImportError as error:
        raise BatonError(
            Reason.FAILED_PRECONDITION,
            f"reading adapters needs {error.name}: install baton-serving[models]",
        ) from error
    return await admin.add(_record(found[0], base, location), replace=replace)


def _record(adapter: Adapter, base: str, location: str) -> AdapterRecord:
    return AdapterRecord(
        id=adapter.name,
        base=base,
        location=location,
        digest=adapter.digest.hex(),
        rank=adapter.rank,
        bytes=adapter.bytes,
    )


def _limits(card: ModelCard) -> AdapterLimits:
    if not card.HasField("adapter_limits"):
        engine = card.engine or "older"
        remedy = ": set BATON_ENGINE_ADAPTER_SLOTS on them" if engine == "vllm" else ""
        raise invalid_field(
            "base",
            f"{card.name} has {engine} workers, which load no adapters while they serve{remedy}",
        )
    limits = card.adapter_limits
    modules = {one.names: (one.outputs, one.inputs) for one in limits.modules}
    return AdapterLimits(limits.max_rank, limits.slots, modules)
