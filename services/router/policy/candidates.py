"""One placement read from the columns: its workers, its costs, the parts of its first token."""

from typing import NamedTuple

from services.router.policy.costs import PlacementQuery, Policy, PrefillEstimate
from services.router.policy.scores import PairScores, Picked, Scores
from services.router.policy.usable import Usable
from services.router.state.columns import Booleans, Floats, WorkerColumns
from services.router.state.worker import Worker


class TtftEstimate(NamedTuple):
    """Predicted time to first token in parts, until decoding can continue after that token."""

    queue_seconds: float
    transfer_seconds: float
    prefill_seconds: float


class PlacementCandidate(NamedTuple):
    """One placement; times in seconds."""

    score: float
    """Placements are compared by it: seconds to the first token plus the cost to others."""
    decode_worker: Worker
    prefill_worker: Worker | None
    """None: the decode worker prefills locally."""
    prefill: PrefillEstimate
    """Estimate for the worker that prefills."""
    ttft: TtftEstimate
    decode_pages: int
    """Pages that the decode worker needs for the request."""
    batch_slowdown: float
    """Seconds that one more stream costs the streams of the decode worker's batch."""
    step_seconds: float
    """Step time of streams next to a chunk of the prompt, where it prefills; 0: none run there."""

    @property
    def computing(self) -> Worker:
        """The worker that prefills."""
        return self.prefill_worker if self.prefill_worker is not None else self.decode_worker

    def exceeds_itl(self, policy: Policy) -> bool:
        """Return whether streams would exceed their target time between tokens."""
        return self.step_seconds > self.computing.itl_limit(policy.itl_target)


class Candidates:
    """The candidates of one query: its scores, and the workers that they refer to.

    A snapshot: later changes of workers do not affect it.

    Args:
        query: the request.
        columns: all workers of its model at that moment.
        usable: those of the workers that may be used.
        scores: scores of the usable workers.
        pages: that decoding needs, as `pages_of` returns them.
        policy: constants of the cost model.
        fit: by worker, whether it has the query's tokenizer and adapter; None: all do.
    """

    def __init__(
        self,
        query: PlacementQuery,
        columns: WorkerColumns,
        usable: Usable,
        scores: Scores,
        pages: int | Floats,
        policy: Policy,
        fit: Booleans | None,
    ) -> None:
        self.scores = scores
        self.usable = usable
        self.workers = columns.workers
        self._fit = fit
        self._query = query
        self._stores = columns.stores
        self._pages = pages
        self._last_chunk = min(1.0, policy.chunk_tokens / query.prompt_tokens)

    def __len__(self) -> int:
        """Return the number of placements."""
        pairs = self.scores.pairs
        return len(self.scores.local) + (pairs.scores.size if pairs is not None else 0)

    def pages(self, row: int) -> int:
        """Return the pages that decoding would need on a row's worker."""
        return self._pages if isinstance(self._pages, int) else int(self._pages[row])

    def fit_rows(self) -> list[int]:
        """Return the rows of all workers that have the query's tokenizer and adapter."""
        if self._fit is None:
            return list(range(len(self.workers)))
        rows: list[int] = self._fit.nonzero()[0].tolist()
        return rows

    def local(self, at: int) -> PlacementCandidate:
        """Return the placement in which a decode worker prefills locally.

        Args:
            at: its index among the decode workers that are compared.
        """
        scores = self.scores
        row = scores.decode_rows.item(at)
        prefill = scores.prefill.row(row)
        return PlacementCandidate(
            scores.local.item(at),
            self.workers[row],
            None,
            prefill,
            TtftEstimate(
                max(prefill.queue_seconds, scores.admission_wait.item(at)),
                prefill.transfer_seconds,
                prefill.prefill_seconds,
            ),
            self.pages(row),
            scores.slowdown.item(at),
            scores.steps.item(at) if scores.steps is not None else 0.0,
        )

    def pair(self, pairs: PairScores, prefill_at: int, decode_at: int) -> PlacementCandidate:
        """Return the placement on a pair of workers.

        Args:
            pairs: those of `scores`.
            prefill_at: index of the prefill worker in the shortlist.
            decode_at: index of the decode worker among those that can receive KV.
        """
        prefill_row, row = pairs.prefill_rows.item(prefill_at), pairs.decode_rows.item(decode_at)
        at = pairs.decode_at.item(decode_at)
        adapted = pairs.adapted.get(int(self._stores[row]))
        if adapted is not None and adapted.changed[prefill_at]:
            prefill = adapted.prefill.row(prefill_at)
        else:
            prefill = self.scores.remote_prefill.row(prefill_row)
        travel, total = pairs.travel.item(prefill_at, decode_at), prefill.total_seconds
        handoff = max(travel * self._last_chunk, travel - total)
        wait = max(0.0, self.scores.admission_wait.item(at) - total - handoff)
        return PlacementCandidate(
            pairs.scores.item(prefill_at, decode_at),
            self.workers[row],
            self.workers[prefill_row],
            prefill,
            TtftEstimate(
                prefill.queue_seconds + wait,
                prefill.transfer_seconds + handoff,
                prefill.prefill_seconds + pairs.resume.item(decode_at),
            ),
            self.pages(row),
            self.scores.slowdown.item(at),
            pairs.steps.item(prefill_at, decode_at) if pairs.steps is not None else 0.0,
        )

    def chosen(self, choice: Picked) -> PlacementCandidate:
        """Return the placement that was chosen."""
        pairs = self.scores.pairs
        if choice.prefill_at < 0 or pairs is None:
            return self.local(choice.decode_at)
        return self.pair(pairs, choice.prefill_at, choice.decode_at)

    def best_local(self) -> PlacementCandidate:
        """Return the best placement without a prefill worker."""
        return self.local(int(self.scores.local.argmin()))

    def best_pair(self) -> PlacementCandidate | None:
        """Return the best pair; None: there are none."""
        pairs = self.scores.pairs
        if pairs is None:
            return None
        prefill_at, decode_at = divmod(int(pairs.scores.argmin()), pairs.scores.shape[1])
        return self.pair(pairs, prefill_at, decode_at)
