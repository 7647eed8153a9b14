"""What it takes workers to obtain the KV of a prompt, as columns of seconds; a row per worker."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.router.policy.costs import PlacementQuery, Policy, PrefillEstimate
from services.router.prefix_index.match import Coverage
from services.router.state.columns import Booleans, Floats, Integers, WorkerColumns
from services.router.state.holdings import RunHoldings

ENGINE, LOCAL, REMOTE, UNCACHED, QUEUE, TRANSFER, COMPUTE, DELAY, TOTAL = range(9)
ESTIMATES = 9
"""Rows of `PrefillColumns.values`."""


class PrefillColumns(NamedTuple):
    """`PrefillEstimate` of many workers."""

    values: Floats
    """[estimate, worker]: blocks in the worker, in its store and elsewhere; uncached tokens;
    seconds of queue, transfer, computing and delay, and of all but delay."""
    tokens: int

    def row(self, row: int) -> PrefillEstimate:
        """Return the estimate of one worker."""
        of_worker = self.values[:, row].tolist()
        engine, local, remote, uncached, queue, transfer, compute, delay, _ = of_worker
        return PrefillEstimate(
            Coverage(int(engine), int(local), int(remote)),
            self.tokens - int(uncached),
            int(uncached),
            queue,
            transfer,
            compute,
            delay,
        )


class Estimator:
    """Cost estimates for one query.

    Args:
        query: the request.
        columns: the workers.
        policy: constants of the cost model.
    """

    def __init__(self, query: PlacementQuery, columns: WorkerColumns, policy: Policy) -> None:
        self._columns = columns
        self._query = query
        self.none: Floats = np.zeros(len(columns))
        self.queue = columns.queue_seconds(query.now)
        self._delayed: Floats | None = None
        if query.turns:
            self._set_turns(policy.delay_weight)
        self.held_runs: list[tuple[int, RunHoldings, list[float]]] = []
        """Per layout with held runs: its number, the runs' holders, the blocks of each."""
        self.moves = False
        """Whether any worker would fetch blocks."""
        self._all_held = self._held()

    def prefill(self, tokens: int) -> PrefillColumns:
        """Return the cost of the KV of the first `tokens` of prompt and output.

        At least one token is computed: its logits are needed.
        """
        return self._estimate(self._all_held, tokens, slice(None))

    def prefill_without(
        self, store: int, tokens: int, rows: Integers
    ) -> tuple[Booleans, PrefillColumns] | None:
        """Return the estimates for some workers without fetching from a store; None: no difference.

        Args:
            store: its number; it is the local store of none of the workers that change.
            tokens: of prompt and output.
            rows: of the workers.

        Returns:
            (which of them would fetch from it, the estimates of all of them without it).
        """
        columns, changed, held = self._columns, None, None
        for number, holdings, blocks in self.held_runs:
            for at, sole in enumerate(holdings.sole_stores):
                if sole != store:
                    continue
                # What comes before a run that nothing else has is all that is left.
                fetched = holdings.kinds[at, 2].take(rows) > 0
                if len(columns.layout_ids) > 1:
                    fetched &= columns.layouts[rows] == number
                if changed is not None:
                    fetched &= ~changed
                if not np.count_nonzero(fetched):
                    continue
                if changed is None or held is None:
                    changed = np.zeros(len(rows), bool)
                    held = self._all_held.take(rows, 1)
                before = _weighted(blocks[:at], holdings.kinds[:at])
                held = np.where(fetched, before.take(rows, 1), held)
                changed |= fetched
        if changed is None or held is None:
            return None
        return changed, self._estimate(held, tokens, rows)

    def _estimate(self, held: Floats, tokens: int, rows: Integers | slice) -> PrefillColumns:
        columns, sizes = self._columns, self._columns.block_sizes
        made: Floats = np.zeros((ESTIMATES, held.shape[1]))
        engine, local, remote, uncached, queue, transfer, compute, delay, total = made
        engine[:], local[:], remote[:], blocks = held
        queue[:] = self.queue[rows]
        per_block = float(sizes[0]) if len(sizes) == 1 else columns.block_tokens[rows]
        np.multiply(blocks, -per_block, out=uncached)
        uncached += float(tokens)
        np.maximum(uncached, 1.0, out=uncached)
        np.multiply(uncached, columns.token_seconds[rows], out=compute)
        np.add(queue, compute, out=total)
        if self.moves:
            np.multiply(local, columns.near_block_seconds[rows], out=transfer)
            transfer += remote * columns.far_block_seconds[rows]
            transfer -= queue
            np.maximum(transfer, 0.0, out=transfer)
            total += transfer
        if self._delayed is not None:
            np.multiply(self._delayed[rows], compute, out=delay)
        return PrefillColumns(made, tokens)

    @property
    def delays(self) -> bool:
        """Whether a prompt would go before others at any worker."""
        return self._delayed is not None

    def _set_turns(self, weight: float) -> None:
        rows = self._columns.rows
        for worker_id, turn in self._query.turns.items():
            row = rows.get(worker_id)
            if row is None:
                continue
            self.queue[row] = max(0.0, self.queue[row] + turn.seconds)
            if turn.delayed:
                if self._delayed is None:
                    self._delayed = np.zeros(len(rows))
                self._delayed[row] = weight * turn.delayed

    def _held(self) -> Floats:
        """Return blocks by kind, as in `RunHoldings`, and worker."""
        columns, found = self._columns, None
        for layout_id, number in columns.layout_ids.items():
            match = self._query.matches.get(layout_id)
            if match is None or not match.runs:
                continue
            holdings = columns.holdings(match)
            self.moves |= holdings.moves
            blocks = [float(blocks) for _, blocks in match.runs]
            self.held_runs.append((number, holdings, blocks))
            held = _weighted(blocks, holdings.kinds)
            if len(columns.layout_ids) > 1:
                held = np.where(columns.layouts == number, held, 0.0)
            found = held if found is None else found + held
        if found is None:
            return np.zeros((4, len(columns)))
        return found


def _weighted(blocks: list[float], kinds: NDArray[np.uint8]) -> Floats:
    """Return blocks by kind and worker, from blocks by run and kinds by run, kind and worker."""
    runs, of, workers = kinds.shape
    flat: Floats = np.dot(blocks, kinds.reshape(runs, of * workers))
    return flat.reshape(of, workers)
