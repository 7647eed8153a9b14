"""Wrapper of vLLM's EngineCore: with `groups/tables.py` all that uses private names of vLLM.

Written for and tested with the release of `environment.TESTED_VERSION`. Each method documents the
names that it uses; tests/unit/engine/vllm/test_core.py has a test for each, which fails if a name
has changed.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import Any

from vllm.config import VllmConfig
from vllm.distributed.kv_events import BlockRemoved
from vllm.distributed.kv_transfer import ensure_kv_transfer_shutdown
from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalFeatureSpec
from vllm.sampling_params import SamplingParams
from vllm.v1.engine import EngineCoreOutput
from vllm.v1.engine.core import EngineCore
from vllm.v1.executor import Executor
from vllm.v1.kv_cache_interface import KVCacheSpec
from vllm.v1.request import Request, RequestStatus

from baton.engine.vllm.groups.tables import BlockTables, FoundCut, Place
from baton.engine.vllm.sequences.requests import CLASS_BITS
from baton.kv.cuts import CutRules

BlockHasher = Callable[[Request], list[bytes]]


class VllmCore:
    """An EngineCore of one process. Only its owner's thread, which steps it, calls this."""

    def __init__(self, config: VllmConfig, executor: type[Executor]) -> None:
        """Load the model; takes seconds.

        Raises:
            ValueError, RuntimeError: as raised by vLLM.
        """
        self._failed = False
        self._core: Any = EngineCore(
            config, executor, log_stats=False, executor_fail_callback=self._on_executor_failed
        )
        self._scheduler: Any = self._core.scheduler
        self._pool: Any = self._scheduler.kv_cache_manager.block_pool
        self._removed: list[tuple[int, bytes]] = []
        self._order: tuple[int, ...] = (0,)
        self._asked: dict[str, int] = {}
        """Cut that is going to be written, by held request, where there are groups."""
        self._found: dict[str, FoundCut] = {}
        self._scheduler.kv_event_publisher = _Removals(self._removed)

    def _on_executor_failed(self) -> None:
        self._failed = True

    @property
    def failed(self) -> bool:
        """Whether a rank's process has ended."""
        return self._failed

    # Properties of the model.

    @property
    def kv_cache_specs(self) -> list[KVCacheSpec]:
        """Return `kv_cache_spec` of each of `scheduler.kv_cache_config.kv_cache_groups`."""
        return [group.kv_cache_spec for group in self._scheduler.kv_cache_config.kv_cache_groups]

    def use_groups(self, order: Sequence[int], rules: CutRules) -> None:
        """Set the order of groups, and how they are cut; call it once, before any request.

        With more than one group, `_get_local_prefix_cache_hit` of the scheduler is replaced: what a
        held request finds ends where it is going to be started.
        """
        self._order = tuple(order)
        self._tables = BlockTables(self._scheduler.kv_cache_manager, order, rules)
        if len(order) > 1:
            self._scheduler._get_local_prefix_cache_hit = self._local_cut

    @property
    def total_pages(self) -> int:
        """Return the blocks of all groups that can be allocated: vLLM keeps one page."""
        return (int(self._pool.num_gpu_blocks) - 1) // len(self._order)

    @property
    def free_pages(self) -> int:
        """Return the blocks of all groups that no request holds, including cached ones."""
        return int(self._pool.get_num_free_blocks()) // len(self._order)

    def call_ranks(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Call a function in every rank, with its worker and further arguments; return by rank.

        Raises:
            RuntimeError: a rank's process has ended, or the function failed there.
        """
        return list(self._core.collective_rpc(function, args=args))

    # Requests.

    def make_request(
        self,
        name: str,
        tokens: Sequence[int],
        params: SamplingParams,
        hasher: BlockHasher,
        arrival: int,
        priority: int,
        adapter: LoRARequest | None,
        features: Sequence[MultiModalFeatureSpec] = (),
    ) -> Request:
        """Return a request whose block hashes are computed by `hasher`.

        The request with the lowest `priority` is first, and the one with the highest is preempted;
        among equals the one with the lowest `arrival` is first. Priorities are only compared, so
        they may have more bits than a machine word.
        """
        return Request(
            request_id=name,
            prompt_token_ids=list(tokens),
            sampling_params=params,
            pooling_params=None,
            arrival_time=float(arrival),
            lora_request=adapter,
            priority=priority,
            block_hasher=hasher,
            mm_features=list(features),
        )

    def add(self, request: Request, cut_tokens: int = 0) -> None:
        """Add a request to the scheduler, which holds it.

        Args:
            request: made here.
            cut_tokens: with groups, as of `SequenceRequest`.
        """
        if len(self._order) > 1:
            self._asked[request.request_id] = cut_tokens
        self._core.add_request(request)

    def found_cut(self, name: str) -> FoundCut | None:
        """Return the cut for which a held request gets pages; None if there are no groups."""
        return self._found.get(name)

    def _local_cut(self, request: Request) -> tuple[Any, int, int, bool]:
        """Replace the scheduler's search of the prefix cache.

        Returns:
            Blocks that are in place, the tokens that they hold, a position where a chunk must end,
            and whether groups diverge. A held request is told of no tokens: the connector tells it
            of all, whether they are in place or on their way, and vLLM takes pages for the others.
        """
        name = request.request_id
        manager = self._scheduler.kv_cache_manager
        limit = request.num_tokens - 1 if manager.prefix_cache_lookup_enabled(request) else 0
        asked = self._asked.get(name)
        found = self._tables.find(request.block_hashes, limit, asked or 0)
        tokens = found.tokens
        if asked is not None:
            self._found[name] = found
            tokens = 0
        return manager.create_kv_cache_blocks(found.blocks), tokens, found.branch_tokens, False

    def resume(self, request: Request, ready_tokens: int, more: Sequence[int]) -> None:
        """Resume a held request.

        Args:
            request: one that waits for remote KV.
            ready_tokens: leading tokens whose KV is in its pages.
            more: output that was sampled elsewhere since it was added; to vLLM, prompt.

        Tokens beyond `ready_tokens` are computed through vLLM's handling of failed loads.
        """
        given = request.num_tokens
        self._asked.pop(request.request_id, None)
        cut = self._found.pop(request.request_id, None)
        # The connector set it to hold the request.
        request.skip_reading_prefix_cache = request.get_skip_reading_prefix_cache()
        if more:
            request.prompt_token_ids.extend(more)
            request._all_token_ids.extend(more)
            request.num_prompt_tokens += len(more)
            request.max_tokens -= len(more)
            request.sampling_params.max_tokens = request.max_tokens
            request.update_block_hashes()
        # Of a cut, pages were taken for what is ready, and vLLM counts it already.
        if ready_tokens < given and (cut is None or ready_tokens == 0):
            request.num_computed_tokens = ready_tokens
            if ready_tokens == 0:  # vLLM takes its pages back
                self._tables.let_go(request.request_id)
            self._scheduler.failed_recving_kv_req_ids.add(request.request_id)
        self._scheduler.finished_recving_kv_req_ids.add(request.request_id)

    def pause(self, request: Request) -> None:
        """Leave a started request out of steps: it releases its pages as if preempted, and is not
        queued. Tokens of steps in flight still arrive.
        """
        scheduler = self._scheduler
        if request.status is RequestStatus.RUNNING:
            scheduler.running.remove(request)
            scheduler._preempt_request(request, time.monotonic())
        scheduler.waiting.remove_requests([request])

    def preempt(self, request: Request) -> None:
        """Take a request out of the batch: it releases its pages, and is queued for others."""
        if request.status is RequestStatus.RUNNING:
            self._scheduler.running.remove(request)
            self._scheduler._preempt_request(request, time.monotonic())

    def sort_running(self) -> None:
        """Schedule running requests by their classes, which are the first digits of priorities."""
        self._scheduler.running.sort(key=lambda request: request.priority >> CLASS_BITS)

    def go_on(self, request: Request) -> None:
        """Queue a paused request for pages, as if preempted."""
        self._scheduler.waiting.prepend_request(request)

    def stop(self, request: Request) -> None:
        """End a running request; it keeps its pages."""
        if not request.is_finished():
            self._scheduler.finish_requests(request.request_id, RequestStatus.FINISHED_ABORTED)

    def release(self, request: Request) -> None:
        """Release a request's pages, in any state."""
        self._asked.pop(request.request_id, None)
        self._found.pop(request.request_id, None)
        self._tables.forget(request.request_id)
        self.stop(request)
        if request.request_id in self._scheduler.requests:
            self._scheduler._free_blocks(request)

    def is_held(self, request: Request) -> bool:
        """Return whether a request waits for KV, or was started but not yet scheduled by vLLM."""
        return bool(request.status is RequestStatus.WAITING_FOR_REMOTE_KVS)

    def tables(self, name: str) -> list[list[int]]:
        """Return the pages of a request per group, NO_PAGE where a block has none."""
        return self._tables.tables(name)

    def holds_page(self, request: Request, group: int, index: int, page: int) -> bool:
        """Return whether a request's block is in that page; any thread may call it.

        vLLM stores its null page in place of a page that it released, without notification.
        """
        return self._tables.holds(request.request_id, group, index, page)

    def keep(self, request: Request, places: Set[Place], stop: int = 0) -> None:
        """Keep these blocks of a request, and no others, also once it needs them no longer.

        Args:
            request: of any state.
            places: groups and blocks.
            stop: tokens at which a chunk of the prompt must end, so that there is a state; 0: none.
        """
        if stop:
            request.shared_prefix_boundary = stop
        self._tables.keep(request.request_id, places)

    def lost_pages(self, request: Request) -> None:
        """Keep nothing of a request that was preempted."""
        self._tables.let_go(request.request_id)

    def computed_tokens(self, request: Request) -> tuple[int, int]:
        """Return the number of a request's leading tokens that have KV, and of those in flight."""
        in_flight = int(request.num_in_flight_tokens)
        return max(0, int(request.num_computed_tokens) - in_flight), in_flight

    # Steps.

    def has_work(self) -> bool:
        """Return whether a step would compute, or finish work in flight."""
        scheduler = self._scheduler
        if scheduler.running or scheduler.deferred_frees:
            return True
        # While requests are held, an empty step is always among those in flight.
        in_flight = self._core.batch_queue or ()
        return any(planned.total_num_scheduled_tokens for _, planned, _ in in_flight)

    @property
    def waits(self) -> bool:
        """Return whether requests wait or are held."""
        return bool(self._scheduler.waiting or self._scheduler.kv_holding_waiting)

    def step(self) -> list[EngineCoreOutput]:
        """Run one step and return its outputs by request; with async scheduling, an earlier step's.

        Raises:
            RuntimeError: a rank's process has ended.
        """
        if self._failed:
            raise RuntimeError("a tensor-parallel rank exited")
        outputs, executed = self._core.step_fn()
        self._core.post_step(executed)
        return outputs[0].outputs if outputs and 0 in outputs else []

    # The prefix cache.

    def take_removed(self) -> list[tuple[int, bytes]]:
        """Return groups and keys of blocks that left the prefix cache since the last call.

        The cache may hold a block twice: its key is removed with the last page.
        """
        self._scheduler.kv_event_publisher.take(self._pool.take_events())
        removed = [
            (self._order.index(group), key)
            for group, key in dict.fromkeys(self._removed)
            if not self._pool.get_cached_block(key, [group])
        ]
        self._removed.clear()
        return removed

    def holds(self, key: bytes) -> bool:
        """Return whether the prefix cache holds a block of the first group."""
        return bool(self._pool.get_cached_block(key, [self._order[0]]))

    def idle_pages(self) -> Iterator[tuple[int, bytes, bool]]:
        """Yield pages that no request holds, in the order of eviction.

        Yields:
            The page, its block's key, and whether it is of the first group.
        """
        for block in self._pool.free_block_queue.get_all_free_blocks():
            if block.block_hash is not None:
                group = int.from_bytes(block.block_hash[-4:], "big")
                yield block.block_id, block.block_hash[:-4], group == self._order[0]

    def evict(self, pages: Iterable[int]) -> None:
        """Remove the blocks of idle pages from the prefix cache."""
        self._pool.evict_blocks(set(pages))

    def close(self) -> None:
        """Release the model, its memory, and the ranks' processes."""
        self._core.shutdown()
        # There is one connector per process: otherwise the next engine would get none.
        ensure_kv_transfer_shutdown()


class _Removals:
    """Replaces vLLM's publisher of events, and keeps those of removed blocks."""

    def __init__(self, removed: list[tuple[int, bytes]]) -> None:
        self._removed = removed

    def publish(self, batch: Any) -> None:
        """Receive one step's events."""
        self.take(batch.events)

    def take(self, events: Iterable[Any]) -> None:
        """Keep groups and keys of removed blocks."""
        for event in events:
            if isinstance(event, BlockRemoved):
                self._removed.extend(
                    (event.group_idx or 0, bytes(key)) for key in event.block_hashes
                )

    def shutdown(self) -> None:
        """Do nothing: no resource is open."""
