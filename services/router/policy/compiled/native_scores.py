"""Placement scores computed by the function in `scores.c`."""

import struct
from ctypes import CDLL, byref, c_char, c_char_p, c_int, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from services.router.policy.costs import PlacementQuery, Policy
from services.router.policy.estimates import ESTIMATES, PrefillColumns
from services.router.policy.pick import TIE_SECONDS, TIE_SHARE
from services.router.policy.scores import Adapted, PairScores, Picked, Scores
from services.router.policy.usable import Usable
from services.router.state.columns import Floats, WorkerColumns

# The structs of scores.c.
_WORKERS = struct.Struct("=qq8Q")
_ROWS = struct.Struct("=QqQQqQq")
_QUERY = struct.Struct("=9q8d")
_HELD = struct.Struct("=qqQQq")
_TURN = struct.Struct("=qdd")
_FOUND = 6
_OF_DECODES = 4
_OF_PAIRS = 3
_MIN_FOUND = 64


class NativeScorer:
    """A `Scorer` whose results equal the array operations' bit for bit. Owned by one event loop.

    Args:
        library: the compiled library, made by `build`.

    Raises:
        OSError: it cannot be loaded.
    """

    def __init__(self, library: Path) -> None:
        self._choose = _load(library).scores_choose
        self._found = (c_int64 * _MIN_FOUND)()

    def __call__(
        self,
        query: PlacementQuery,
        columns: WorkerColumns,
        usable: Usable,
        pages: int | Floats,
        policy: Policy,
    ) -> tuple[Scores, Picked]:
        """Score all placements, and choose one.

        Raises:
            MemoryError: there is no memory for the computation.
        """
        handover, workers = usable.handover, len(columns)
        decodes, takers = len(usable.decode), len(handover.decode)
        most = min(policy.max_prefill_workers, len(handover.prefill))
        layouts, blocks, held = _held(query, columns)
        turns = _turns(query, columns, policy) if query.turns else b""
        alone_at = ESTIMATES * workers * (2 if query.output_tokens else 1)
        resume_at = alone_at + _OF_DECODES * decodes
        pairs_at = resume_at + takers
        # Each run may have a store of its own, without which every prefill worker is estimated.
        made: Floats = np.empty(pairs_at + most * (_OF_PAIRS * takers + (1 + ESTIMATES) * blocks))
        if _FOUND + most + blocks > len(self._found):
            self._found = (c_int64 * (_FOUND + most + blocks))()
        told = _QUERY.pack(
            query.prompt_tokens,
            query.output_tokens,
            query.seed & 0xFFFFFFFF,
            layouts,
            len(turns) // _TURN.size,
            policy.disaggregation != "never" and not columns.all_combined,
            policy.disaggregation == "always",
            most,
            policy.resume_remote_min_tokens,
            query.now,
            min(1.0, policy.chunk_tokens / query.prompt_tokens),
            policy.batch_slowdown_weight,
            policy.typical_output_tokens,
            policy.itl_target,
            TIE_SECONDS,
            TIE_SHARE,
            pages if isinstance(pages, int) else 0.0,
        )
        failed = self._choose(
            columns.addresses or _tell_workers(columns),
            usable.addresses or _tell_rows(usable),
            told,
            held,
            turns,
            None if isinstance(pages, int) else pages.ctypes.data,
            byref(c_char.from_buffer(made.data)),
            self._found,
        )
        if failed:
            raise MemoryError("out of memory for the placement scores")
        prefill_at, decode_at, resumes, has_pairs, listed, adapted = self._found[:_FOUND]
        tokens = query.prompt_tokens + query.output_tokens
        of_all = ESTIMATES * workers
        prefill = PrefillColumns(made[:of_all].reshape(ESTIMATES, workers), tokens)
        remote = prefill
        if query.output_tokens:
            prompt = made[of_all:alone_at].reshape(ESTIMATES, workers)
            remote = PrefillColumns(prompt, query.prompt_tokens)
        score, steps, wait, slowdown = made[alone_at:resume_at].reshape(_OF_DECODES, decodes)
        pairs = None
        if has_pairs:
            adapted_at = pairs_at + _OF_PAIRS * listed * takers
            costs, beside, travel = made[pairs_at:adapted_at].reshape(_OF_PAIRS, listed, takers)
            rest = self._found[_FOUND : _FOUND + most + adapted]
            width = (1 + ESTIMATES) * listed
            without = {}
            for at, store in enumerate(rest[most:]):
                begin = adapted_at + at * width
                one = made[begin : begin + width].reshape(1 + ESTIMATES, listed)
                without[store] = Adapted(one[0], PrefillColumns(one[1:], query.prompt_tokens))
            pairs = PairScores(
                np.array(rest[:listed], np.int64),
                handover.decode,
                handover.decode_at,
                costs,
                beside,
                travel,
                made[resume_at:pairs_at],
                without,
            )
        scores = Scores(
            usable.decode, score, steps, wait, slowdown, prefill, remote, bool(resumes), pairs
        )
        return scores, Picked(decode_at, prefill_at)


def _held(query: PlacementQuery, columns: WorkerColumns) -> tuple[int, int, bytes]:
    """Return the number of layouts with held runs, the number of runs, and their descriptors."""
    told, blocks = b"", list[int]()
    for layout_id, number in columns.layout_ids.items():
        match = query.matches.get(layout_id)
        if match is None or not match.runs:
            continue
        holdings = columns.holdings(match)
        told += _HELD.pack(number, len(match.runs), *holdings.addresses, len(blocks))
        blocks += [count for _, count in match.runs]
    return len(told) // _HELD.size, len(blocks), told + struct.pack(f"={len(blocks)}q", *blocks)


def _turns(query: PlacementQuery, columns: WorkerColumns, policy: Policy) -> bytes:
    rows, weight = columns.rows, policy.delay_weight
    return b"".join(
        _TURN.pack(rows[worker], turn.seconds, weight * turn.delayed)
        for worker, turn in query.turns.items()
        if worker in rows
    )


def _tell_workers(columns: WorkerColumns) -> bytes:
    """Return the addresses of the columns' arrays, which are stable for the columns' lifetime."""
    columns.addresses = _WORKERS.pack(
        len(columns),
        len(columns.layout_ids) > 1,
        *(
            array.ctypes.data
            for array in (
                columns.values,
                columns.beside,
                columns.can_prefill,
                columns.can_decode,
                columns.stores,
                columns.layouts,
                columns.block_tokens,
                columns.id_hashes,
            )
        ),
    )
    return columns.addresses


def _tell_rows(usable: Usable) -> bytes:
    """Return the addresses of the rows, which are stable for the rows' lifetime."""
    handover = usable.handover
    usable.addresses = _ROWS.pack(
        usable.decode.ctypes.data,
        len(usable.decode),
        handover.decode.ctypes.data,
        handover.decode_at.ctypes.data,
        len(handover.decode),
        handover.prefill.ctypes.data,
        len(handover.prefill),
    )
    return usable.addresses


@cache
def _load(path: Path) -> CDLL:
    library = CDLL(str(path))
    choose: Any = library.scores_choose
    choose.restype = c_int
    told, array = c_char_p, c_void_p
    choose.argtypes = [told, told, told, told, told, array, array, array]
    return library
