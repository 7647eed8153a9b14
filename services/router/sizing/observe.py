"""What a router knows of a model, as sizing takes it."""

from services.router.admission.waiting import QueuedWork
from services.router.policy.placement_service import PlacementService
from services.router.sizing.demand import ModelDemand
from services.router.sizing.replicas import Replica, ReplicaPool, ReplicaState
from services.router.state.fleet import Fleet
from services.router.state.instances import InstanceState, Role


def pools(fleet: Fleet, model: str) -> dict[Role, ReplicaPool]:
    """Return the pools of a model that have replicas, by role."""
    replicas: dict[Role, list[Replica]] = {}
    for instance in fleet.registered(model):
        replicas.setdefault(instance.role, []).append(_replica(fleet, instance))
    return {role: ReplicaPool(found) for role, found in replicas.items()}


def with_queue(
    demand: ModelDemand, queued: QueuedWork, placements: PlacementService, model: str
) -> ModelDemand:
    """Return the demand at a router with what waits in its queue.

    Args:
        demand: what arrived.
        queued: what waits.
        placements: knows the workers' rates.
        model: the model.
    """
    if not queued.requests:
        return demand
    tokens = placements.uncached_tokens(model, queued.prefill_seconds, queued.prompt_tokens)
    return demand._replace(
        queued_tokens=tokens,
        queued_sequences=queued.sequences,
        queued_kv_tokens=queued.kv_tokens,
    )


def _replica(fleet: Fleet, instance: InstanceState) -> Replica:
    worker, report = fleet.worker(instance.id), fleet.report(instance.id)
    if worker is None or report is None:
        draining = instance.draining
        return Replica(ReplicaState.DRAINING if draining else ReplicaState.STARTING)
    state = ReplicaState.LIVE
    if worker.draining:
        state = ReplicaState.DRAINING
    elif worker.stale:
        state = ReplicaState.SILENT
    learned, chunk = fleet.learned(instance.id), worker.decode_chunk_tokens
    rate = learned.prefill_tokens_per_second
    if rate > 0 and instance.role.can_decode and chunk > 0:
        # Next to streams each chunk takes a step too. Replicas with prompts have streams.
        rate = 1 / (1 / rate + learned.decode_step_seconds / chunk)
    return Replica(
        state,
        prefill_rate=rate,
        samples=learned.prefill_samples,
        pending_tokens=worker.pending_prompt_tokens,
        running=worker.running,
        waiting=worker.waiting,
        step_seconds=learned.decode_step_seconds,
        max_running=report.max_running,
        used_pages=max(0, worker.total_pages - worker.free_pages),
        total_pages=worker.total_pages,
        block_tokens=worker.block_tokens,
        itl_target=worker.itl_target,
        has_room=worker.room.takes(1, 1),
    )
