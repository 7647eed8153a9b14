"""vLLM's executors, changed so that groups of layers have equal blocks."""

from pathlib import Path

from vllm.v1.executor import Executor
from vllm.v1.executor.multiproc_executor import MultiprocExecutor
from vllm.v1.executor.uniproc_executor import UniProcExecutor
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheSpec

from baton.engine.vllm.groups.kinds import keep_windows_apart, layer_specs


class _EqualBlocks(Executor):
    """Changes what vLLM's core learns of the layers, before it allocates pages for them."""

    def get_kv_cache_specs(self) -> list[dict[str, KVCacheSpec]]:
        """Return the kind of KV of each layer by rank; vLLM calls it once, after loading.

        Raises:
            StartupError: Baton cannot transfer this model's KV.
        """
        block_tokens = self.vllm_config.cache_config.block_size
        model = Path(self.vllm_config.model_config.model)
        specs = [layer_specs(each, block_tokens, model) for each in super().get_kv_cache_specs()]
        self._specs = [dict(each) for each in specs]
        return specs

    def initialize_from_config(self, kv_cache_configs: list[KVCacheConfig]) -> None:
        """Allocate each rank's KV; vLLM calls it once, with the configuration of each."""
        pairs = zip(kv_cache_configs, self._specs, strict=True)
        super().initialize_from_config([keep_windows_apart(*each) for each in pairs])


class LocalExecutor(_EqualBlocks, UniProcExecutor):
    """Runs the model in this process."""


class RanksExecutor(_EqualBlocks, MultiprocExecutor):
    """Runs each rank of the model in a process."""
