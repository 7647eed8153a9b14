"""Register adapters: read them, check them against the cards of their model, write their record."""

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from baton.engine.lora.adapter import Adapter, read_adapter
from baton.engine.lora.config import AdapterError
from baton.engine.lora.limits import AdapterLimits
from baton.errors import BatonError, Reason, invalid_field
from baton.internal.v1.cluster_pb2 import ModelCard
from baton.models.adapters.cache import AdapterCache
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
        location: a directory in PEFT's layout, which this process and the workers can read, or a
            URL, from which it is downloaded.
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
        found = await asyncio.to_thread(_read, name, location, limits)
    except AdapterError as error:
        raise invalid_field("location", str(error)) from error
    except ImportError as error:
        raise BatonError(
            Reason.FAILED_PRECONDITION,
            f"reading adapters needs {error.name}: install baton-serving[models]",
        ) from error
    return await admin.add(_record(found, base, location), replace=replace)


def _read(name: str, location: str, limits: Sequence[AdapterLimits]) -> Adapter:
    """Return an adapter that fits all of these limits."""
    with TemporaryDirectory(prefix="baton-adapter-") as directory:
        most = min(limits, key=lambda one: one.max_bytes or math.inf)
        with AdapterCache(Path(directory)).fetch(location, most) as held:
            first, *_ = [read_adapter(name, held.directory, one) for one in limits]
            return first


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
