"""The group of a worker's engine."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from baton.request.limits import MAX_ADAPTERS
from baton.settings.groups.base import MIB, SettingsGroup
from baton.settings.values import MODEL_NAME, Adapters, Bytes, Cores, JsonTable

_GROUP = r"(full|state|(window|chunk):[1-9]\d{0,5})"
GROUPS = rf"^$|^{_GROUP}(,{_GROUP})*$"
"""Groups of the simulator's layers."""


class EngineSettings(SettingsGroup):
    """A worker's engine."""

    kind: Literal["torch", "sim", "vllm"] = Field(
        "torch",
        description="engine: torch and vllm compute the model, sim only takes the time that it "
        "would take",
    )
    model: Path | None = Field(None, description="checkpoint directory (Hugging Face layout)")
    model_name: str = Field(
        "",
        pattern=f"^$|^{MODEL_NAME}$",
        description="name that clients request; empty: the directory's name",
    )
    model_digests: Literal["changed", "all", "off"] = Field(
        "changed",
        description="which files of a checkpoint are compared with the digests in its "
        "baton-model.json at startup, if it has one: those whose time of modification differs, "
        "all, or none. Sizes are always compared",
    )
    dtype: Literal["auto", "float32", "bfloat16", "float64"] = Field(
        "auto", description="data type that the model is computed in; auto: the checkpoint's"
    )
    device: str = Field("cpu", pattern=r"^(cpu|cuda(:\d+)?)$", description="cpu, cuda or cuda:N")
    kv_bytes: Bytes = Field(512 * MIB, ge=64 * 1024, description="memory for the engine's KV pages")
    kv_idle_seconds: float = Field(
        30,
        ge=0,
        le=86400,
        description="idle time after which KV leaves the engine's pages if the store holds it; "
        "the engine fetches it again when needed; 0: never",
    )
    max_running: int = Field(64, ge=1, le=65536, description="maximum sequences in one batch")
    max_waiting: int = Field(
        256,
        ge=0,
        le=1_000_000,
        description="maximum waiting sequences, in addition to `max_running`; the worker hands "
        "further ones back to be placed again",
    )
    paused_share: float = Field(
        0.25,
        ge=0,
        le=1,
        description="maximum share of the KV pages that paused streams keep while they wait for "
        "slow clients; further paused streams release their KV and are recomputed. vllm: all of "
        "them do",
    )
    chunk_tokens: int = Field(
        512,
        ge=1,
        le=1_000_000,
        description="maximum prompt tokens computed in one step (chunked prefill)",
    )
    decode_chunk_tokens: int = Field(
        0,
        ge=0,
        le=1_000_000,
        description="the same for steps that also decode, which prefill delays; 0: 32 on a decode "
        "worker, chunk_tokens elsewhere",
    )
    threads: int = Field(
        0,
        ge=0,
        le=4096,
        description="compute threads; 0: the library's default, at most the cgroup's CPU quota",
    )
    native_threads: int = Field(
        0,
        ge=0,
        le=4096,
        description="compute threads of the native operators when they also compute matrix "
        "products (`deterministic`); they do not wait for threads without a core; 0: same as "
        "`threads`",
    )
    cores: Cores = Field(
        (), description="CPU cores to pin compute threads to, such as 0,2-3; empty: not pinned"
    )
    nice: int = Field(
        0,
        ge=0,
        le=19,
        description="niceness of compute threads, added to the process's; on cores that workers "
        "share, threads with a higher value yield to the others",
    )
    native: Literal["auto", "off", "required"] = Field(
        "auto",
        description="compiled operators on CPU: auto uses them if they are built (`baton up` and "
        "`python -m baton.engine.native.build` build them), required builds them at startup",
    )
    native_reason: str = Field(
        "",
        description="why native is off, for `baton status`; `baton up` sets it",
    )
    deterministic: Literal["auto", "off", "required"] = Field(
        "auto",
        description="the same bfloat16 tokens whatever else is in the batch and wherever a stream "
        "continues, with compiled operators on CPU; auto: if that costs nothing (not with AMX)",
    )
    context_tokens: int = Field(
        0, ge=0, description="maximum length of prompt plus output; 0: the checkpoint's"
    )
    sampling_defaults: Literal["checkpoint", "none"] = Field(
        "checkpoint",
        description="default sampling parameters: those of the checkpoint's "
        "generation_config.json, or none",
    )
    self_check: bool = Field(
        True,
        description="torch, vllm: at startup, export the KV of a short prompt, evict it, import "
        "it and continue; the engine does not start unless the tokens are the same",
    )
    adapters: Adapters = Field(
        {},
        description="LoRA adapters, directories as PEFT writes them by the names that clients "
        f"request: name=directory,…; at most {MAX_ADAPTERS}",
    )
    max_adapter_rank: int = Field(16, ge=1, le=512, description="maximum rank of a LoRA adapter")
    adapter_slots: int = Field(
        0,
        ge=0,
        le=1024,
        description="registered LoRA adapters (`baton adapters`) that a worker holds in memory at "
        "once; the one used longest ago makes room for another; 0: 20, and with vllm none",
    )
    adapter_cache: Path | None = Field(
        None,
        description="directory for adapters downloaded from URLs, which workers of this machine "
        "may share; empty: `baton-adapters-UID` in the directory for temporary files",
    )
    adapter_cache_bytes: Bytes = Field(
        4096 * MIB,
        ge=MIB,
        description="maximum size of adapter_cache; adapters used longest ago make room",
    )
    block_tokens: int = Field(
        0,
        ge=0,
        le=4096,
        description="vllm, sim: tokens per KV block; with vllm on CPU a multiple of 32; 0: 32 "
        "there, 16 elsewhere",
    )
    tensor_parallel: int = Field(
        1, ge=1, le=64, description="vllm: tensor-parallel ranks, each a process or a GPU"
    )
    exact_draws: bool = Field(
        True,
        description="vllm: sampled outputs continue with the same tokens on any worker; if off, "
        "vLLM samples and they do not",
    )
    speculative_tokens: int = Field(
        0,
        ge=0,
        le=64,
        description="vllm: tokens proposed per step by n-gram lookup in the context; turns "
        "exact_draws off; 0: none",
    )
    speculative_ngram: int = Field(
        3, ge=1, le=32, description="vllm: longest n-gram that is looked up"
    )
    async_scheduling: Literal["auto", "on", "off"] = Field(
        "auto",
        description="vllm: schedule a step while the previous one is computed; auto: on a GPU, "
        "not on CPU",
    )
    vllm_args: JsonTable = Field(
        default_factory=dict,
        description='vllm: further engine arguments of vLLM, as JSON, such as {"quantization": '
        '"fp8"}; not those that Baton sets',
    )
    sim_prefill_tokens_per_second: float = Field(
        20000, gt=0, description="sim: prefill throughput, in prompt tokens per second"
    )
    sim_decode_step_seconds: float = Field(
        0.005, ge=0, description="sim: duration of a decode step"
    )
    sim_decode_sequence_seconds: float = Field(
        0.0001, ge=0, description="sim: time that each sequence adds to a decode step"
    )
    sim_time_scale: float = Field(
        1.0, ge=0, description="sim: factor on all its durations; 0: no time at all"
    )
    sim_groups: str = Field(
        "",
        pattern=GROUPS,
        description="sim: groups of layers of the simulated model, such as "
        "full,window:64,chunk:128,state; empty: full attention only",
    )
    sim_kill_token: int = Field(
        -1,
        ge=-1,
        description="sim: for fault tests: the worker dies when it computes this token; -1: never",
    )
