"""What workers look like to one class: the work of lower classes gives way, and is left out."""

from collections.abc import Sequence

from services.router.state.columns import WorkerColumns
from services.router.state.instances import LoadReport, ReportedClassLoad
from services.router.state.worker import Worker


class ClassView:
    """Cached workers and columns as requests of one class see them. Owned by a fleet.

    Args:
        rank: of the class.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.workers: dict[str, Worker] = {}
        self.columns: dict[str, WorkerColumns] = {}
        """By model; replaced when a worker is added, removed or registered again."""
        self.changed: dict[str, set[str]] = {}
        """By model, workers whose rows are to be rewritten."""

    def invalidate(self, worker_id: str, model: str) -> None:
        """Have a worker built again."""
        self.workers.pop(worker_id, None)
        changed = self.changed.get(model)
        if changed is None:
            changed = self.changed[model] = set()
        changed.add(worker_id)


def lower_load(report: LoadReport, rank: int) -> ReportedClassLoad:
    """Return the part of a worker's load that gives way to a class.

    Args:
        report: the worker's.
        rank: of the class.
    """
    lower: Sequence[ReportedClassLoad] = [one for one in report.classes if one.rank > rank]
    if not lower:
        return ReportedClassLoad(rank)
    pages = sum(one.pages for one in lower)
    return ReportedClassLoad(
        rank,
        sum(one.running for one in lower),
        sum(one.waiting for one in lower),
        sum(one.pending_prompt_tokens for one in lower),
        min(pages, report.total_pages - report.free_pages),  # shared ones are counted for each
    )
