"""Random placement, by the frontend's own knowledge of the cluster.

Load and cached prefixes are not known, so it is used only while no router can place requests.
"""

import random
from collections.abc import Callable, Mapping

from baton.internal.v1 import cluster_pb2, kvstore_pb2, router_pb2
from services.frontend.requests.request import ResolvedRequest

_PREFILL = (cluster_pb2.ROLE_PREFILL,)
_DECODE = (cluster_pb2.ROLE_DECODE, cluster_pb2.ROLE_COMBINED)


def random_placement(
    instances: Mapping[str, cluster_pb2.Instance],
    request: ResolvedRequest,
    usable: Callable[[cluster_pb2.Instance], bool],
    draw: random.Random,
) -> router_pb2.Placement | None:
    """Return a decode worker for a request, and a prefill worker of its layout if there is one.

    Returns None without a decode worker.

    Args:
        instances: the instances alive, by id.
        request: workers with another tokenizer, or without its adapter, are not used.
        usable: returns whether a worker may be used.
        draw: the source of randomness.
    """
    model = request.model
    workers = [
        one
        for one in instances.values()
        if one.model == model.name
        and one.tokenizer_digest == model.tokenizer_digest
        and not one.draining
        and usable(one)
        and _has_adapter(one, request)
    ]
    decodes = [one for one in workers if one.role in _DECODE]
    if not decodes:
        return None
    decode = draw.choice(decodes)
    placement = router_pb2.Placement(
        decode=_target(decode),
        prediction=router_pb2.Prediction(reason="random placement: no router available"),
    )
    prefills = [
        one for one in workers if one.role in _PREFILL and one.layout_id == decode.layout_id
    ]
    if prefills and decode.role == cluster_pb2.ROLE_DECODE:
        prefill = draw.choice(prefills)
        placement.prefill.CopyFrom(_target(prefill))
        store = instances.get(prefill.store_id)
        if store is not None:
            placement.sources.append(kvstore_pb2.KvSource(store_id=store.id, address=store.address))
    return placement


def _has_adapter(instance: cluster_pb2.Instance, request: ResolvedRequest) -> bool:
    name, digest = request.context.adapter, request.adapter_digest
    return not name or any((one.name, one.digest) == (name, digest) for one in instance.adapters)


def _target(instance: cluster_pb2.Instance) -> router_pb2.Target:
    return router_pb2.Target(
        instance_id=instance.id, incarnation=instance.incarnation, address=instance.address
    )
