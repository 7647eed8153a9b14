"""Conversion of messages of workers and discovery to the fleet's plain values."""

from baton.internal.v1 import cluster_pb2, worker_pb2
from baton.kv.wire.groups import groups_of
from baton.telemetry.logs import get_logger
from services.router.state.instances import (
    InstanceState,
    LoadReport,
    ModelLayout,
    ReportedClassLoad,
    Role,
)

log = get_logger(__name__)

ROLES = {
    cluster_pb2.ROLE_PREFILL: Role.PREFILL,
    cluster_pb2.ROLE_DECODE: Role.DECODE,
    cluster_pb2.ROLE_COMBINED: Role.COMBINED,
    cluster_pb2.ROLE_KVSTORE: Role.KVSTORE,
}
"""Roles of the instances that placements choose from."""


def instance_from_proto(instance: cluster_pb2.Instance) -> InstanceState:
    """Return a worker or store; its role is one of `ROLES`."""
    return InstanceState(
        id=instance.id,
        role=ROLES[instance.role],
        incarnation=instance.incarnation,
        address=instance.address,
        model=instance.model,
        layout_id=instance.layout_id,
        store_id=instance.store_id,
        tokenizer_digest=instance.tokenizer_digest,
        adapters=frozenset((adapter.name, adapter.digest) for adapter in instance.adapters),
        draining=instance.draining,
    )


def layout_from_proto(card: cluster_pb2.ModelCard) -> ModelLayout:
    """Return the layout that a model's card describes.

    One with groups that this release does not know is taken for full attention: the index then
    predicts more than workers find.
    """
    try:
        groups = groups_of(card.groups)
    except ValueError as error:
        log.warning("router.groups.unknown", model=card.name, error=str(error))
        groups = ()
    return ModelLayout(card.name, card.layout_id, card.block_tokens, card.block_bytes, groups)


def report_from_proto(report: worker_pb2.LoadReport) -> LoadReport:
    """Return a report; its tickets are read in place, as most are known already.

    Workers of the previous release do not report what of their queue they will find cached: all of
    it counts as uncached.
    """
    return LoadReport(
        report.instance_id,
        report.incarnation,
        report.running,
        report.waiting,
        max(0, report.pending_prompt_tokens - report.pending_cached_tokens),
        report.free_pages,
        report.total_pages,
        report.prefill_tokens_per_second,
        report.decode_step_seconds,
        report.fetch_bytes_per_second,
        report.tickets,
        report.draining,
        report.chunk_tokens,
        report.decode_chunk_tokens,
        report.max_running,
        report.max_sequences,
        report.reserved_pages,
        report.ticket_sequences,
        report.resident_adapters,
        report.adapter_slots,
        report.adapter_load_seconds,
        tuple(
            ReportedClassLoad(
                one.priority_class,
                one.running,
                one.waiting,
                max(0, one.pending_prompt_tokens - one.pending_cached_tokens),
                one.pages,
            )
            for one in report.classes
        ),
    )
