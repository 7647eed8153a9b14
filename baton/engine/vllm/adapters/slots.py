"""vLLM's slots for adapters in one rank; with `core.py`, all that uses private names of vLLM.

vLLM itself would read an adapter's files within a step. Here its matrices come from bytes that were
verified, and are brought into its form on any thread.
"""

from collections.abc import Iterable
from typing import Any

import torch
from vllm.lora.layers.base_linear import BaseLinearLayerWithLoRA
from vllm.lora.lora_model import LoRAModel
from vllm.lora.peft_helper import PEFTHelper
from vllm.lora.utils import parse_fine_tuned_lora_name

from baton.engine.lora.adapter import AdapterFiles
from baton.engine.lora.config import AdapterConfig
from baton.engine.lora.tensors import file_tensors
from baton.engine.lora.weights import MATRIX


class RankSlots:
    """The slots of the process that it is created in.

    Args:
        worker: of vLLM, whose `model_runner.lora_manager._adapter_manager` owns the slots.
    """

    def __init__(self, worker: Any) -> None:
        self._models = worker.model_runner.lora_manager._adapter_manager

    def adapted(self, modules: Iterable[str]) -> list[str]:
        """Return those of a checkpoint's modules to which adapters are added: linear layers."""
        models = self._models
        layers = {
            part
            for name, layer in models.modules.items()
            if isinstance(layer, BaseLinearLayerWithLoRA)
            # Of joined layers it takes the parts' matrices, and none of the whole.
            for part in models.packed_modules.get(name, (name,))
        }
        mapper = self._mapper()
        return [
            module
            for module in modules
            if parse_fine_tuned_lora_name(f"{module}.lora_A.weight", mapper)[0] in layers
        ]

    def read(self, number: int, files: AdapterFiles) -> LoRAModel:
        """Return an adapter in the form that `put` takes; any thread may call it.

        Args:
            number: unique among adapters, from 1.
            files: of the adapter, which fits the model.

        Raises:
            AdapterError: the file is damaged.
        """
        tensors = file_tensors(files.weights)
        adapter = LoRAModel.from_lora_tensors(
            number,
            tensors,
            _peft(files.config, tensors),
            device="cpu",
            dtype=self._models.lora_config.lora_dtype,
            weights_mapper=self._mapper(),
        )
        self._models._create_merged_loras_inplace(adapter)
        return adapter

    def put(self, adapter: LoRAModel) -> None:
        """Put an adapter into a free slot. Only between steps."""
        self._models._registered_adapters[adapter.id] = adapter
        self._models.activate_adapter(adapter.id)

    def remove(self, number: int) -> None:
        """Release an adapter's slot. Only between steps."""
        self._models.remove_adapter(number)

    def _mapper(self) -> Any:
        mapper = getattr(self._models.model, "hf_to_vllm_mapper", None)
        return None if mapper is None else mapper.get_rename_mapper()


def _peft(config: AdapterConfig, tensors: dict[str, torch.Tensor]) -> PEFTHelper:
    names = {match[1] for match in map(MATRIX.fullmatch, tensors) if match}
    return PEFTHelper(
        r=config.rank,
        lora_alpha=config.alpha,
        target_modules=sorted(names),
        use_rslora=config.use_rslora,
        rank_pattern=config.rank_pattern,
        alpha_pattern=config.alpha_pattern,
    )
