"""The connector that vLLM loads. It holds sequences, independent of stores and transports."""

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    SupportsHMA,
)

from baton.engine.vllm.layout import attention_format
from baton.engine.vllm.pages import local_pages
from baton.engine.vllm.ranks.agent import start_agent
from baton.engine.vllm.registry import ADMISSIONS, REGISTERED, WORKER_ADDRESS, RegisteredKv


class NoMetadata(KVConnectorMetadata):
    """Empty metadata from the scheduler's side to the ranks."""


class BatonConnector(KVConnectorBase_V1, SupportsHMA):
    """Reports for each new sequence that its whole context is being loaded, so that vLLM allocates
    pages and waits; the engine ends the wait. Both sides call the engine's entries in `registry`.
    """

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)
        self._engine_id = str(vllm_config.kv_transfer_config.engine_id)
        if role is KVConnectorRole.SCHEDULER:
            self._admission = ADMISSIONS[self._engine_id]

    @property
    def requires_kv_delivery(self) -> bool:
        # A block that was not read in time is recomputed elsewhere.
        return False

    # The scheduler's side.

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        found, holds = self._admission.match(request.request_id, num_computed_tokens)
        if holds:
            # vLLM holds no request that skips the prefix cache, and has searched the cache by now.
            request.skip_reading_prefix_cache = False
        return found, holds

    def update_state_after_alloc(
        self,
        request: Any,
        blocks: Any,  # noqa: ARG002
        num_external_tokens: int,
    ) -> None:
        self._admission.allocated(request.request_id, loading=num_external_tokens > 0)

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        self._admission.scheduled(
            scheduler_output.num_scheduled_tokens, scheduler_output.preempted_req_ids or ()
        )
        return NoMetadata()

    def request_finished(self, request: Any, block_ids: Any) -> tuple[bool, None]:  # noqa: ARG002
        # Pages stay allocated until the worker closes the sequence.
        return True, None

    def request_finished_all_groups(
        self,
        request: Any,  # noqa: ARG002
        block_ids: Any,  # noqa: ARG002
    ) -> tuple[bool, None]:
        return True, None

    # A rank's side.

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        config = self._vllm_config
        backend, isa = attention_format(config)
        pages = local_pages(kv_caches, self._kv_cache_config)
        worker = config.kv_transfer_config.kv_connector_extra_config.get(WORKER_ADDRESS)
        if worker is None:
            REGISTERED[self._engine_id] = RegisteredKv(pages, backend, isa)
        else:
            start_agent(worker, config.parallel_config.rank, pages, backend, isa)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Do nothing: no KV is loaded within a step."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Do nothing: no KV is loaded within a step."""

    def save_kv_layer(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: blocks are read from the pages after the step."""

    def wait_for_save(self) -> None:
        """Do nothing: blocks are read from the pages after the step."""
