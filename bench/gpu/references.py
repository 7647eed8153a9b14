"""Reference outputs on a device: those of vLLM without Baton, else those of transformers."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from baton.engine.testing.vllm_alone import stock
from baton.engine.vllm.environment import is_cpu_build

MEMORY_SHARE = 0.1
"""Share of a GPU's memory that must be free for vLLM: several families run at once."""


def has_vllm(device: str) -> bool:
    """Return whether the installed vLLM, if any, computes on a device."""
    return find_spec("vllm") is not None and is_cpu_build() == (device == "cpu")


def vllm_outputs(asked: dict[str, Any], device: str) -> list[dict[str, Any]]:
    """Return outputs as of `stock`."""
    if device == "cpu":
        return stock(asked)
    return stock(asked, gpu_memory_utilization=MEMORY_SHARE)


def transformers_outputs(asked: dict[str, Any], device: str) -> list[dict[str, Any]]:
    """Return greedy outputs of transformers, one prompt after the other, as of `stock`."""
    import torch
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(
        Path(asked["model"]), dtype=getattr(torch, asked["dtype"]), local_files_only=True
    )
    model = model.to(device)
    model.generation_config.eos_token_id = None  # as ignore_eos does
    answers = []
    for prompt in asked["prompts"]:
        ids = torch.tensor([prompt], device=device)
        made = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=asked["output_tokens"],
            output_logits=True,
            return_dict_in_generate=True,
        )
        best = torch.cat(made.logits).float().log_softmax(-1).topk(2).values
        answers.append(
            {
                "tokens": made.sequences[0, len(prompt) :].tolist(),
                "logprobs": best[:, 0].tolist(),
                "gaps": (best[:, 0] - best[:, 1]).tolist(),
            }
        )
    return answers
