"""Placements on given workers."""

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

from services.router.policy.costs import PlacementQuery, Policy
from services.router.policy.placement import DEFAULT_POLICY, Decision
from services.router.policy.placement import place as place_on_columns
from services.router.prefix_index.match import Coverage, Match
from services.router.state.columns import WorkerColumns
from services.router.state.holdings import HoldingsTable
from services.router.state.worker import RegisteredWorker, Worker

_REGISTERED = {one.name for one in fields(RegisteredWorker) if one.init} - {"draining"}


def make_worker(**values: Any) -> Worker:
    """Return a worker with given fields of its record and of its report."""
    registered = {name: values.pop(name) for name in _REGISTERED & values.keys()}
    return Worker(RegisteredWorker(**registered), **values)


def beside(worker: Worker, store_id: str) -> Worker:
    """Return the worker as it would be next to another store."""
    return replace(worker, registered=replace(worker.registered, store_id=store_id))


def place(
    query: PlacementQuery, workers: Iterable[Worker], policy: Policy = DEFAULT_POLICY
) -> Decision:
    """Choose the workers for a request."""
    return place_on_columns(query, WorkerColumns(workers), policy)


def cover(match: Match, worker_id: str, store_id: str) -> Coverage:
    """Return the part of a chain that a worker has or can fetch, as placements take it."""
    kinds = HoldingsTable([(worker_id, store_id)], {store_id: 0}).of(match).kinds[:, :3, 0]
    engine, local, remote = (
        sum(int(run[kind]) * blocks for run, (_, blocks) in zip(kinds, match.runs, strict=True))
        for kind in range(3)
    )
    return Coverage(engine, local, remote)
