"""The group of a worker's engine."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from baton.request.limits import MAX_ADAPTERS
from baton.settings.groups.base import MIB, SettingsGroup
from baton.settings.values import MODEL_NAME, Adapters, Bytes, Cores, JsonTable


class EngineSettings(SettingsGroup):
    """A worker's engine."""

    kind: Literal["torch", "sim", "vllm"] = Field(
        "torch",
        description="torch computes the model, vllm has vLLM compute it, sim only takes the time "
        "that one would",
    )
    model: Path | None = Field(None, description="checkpoint directory (Hugging Face layout)")
    model_name: str = Field(
        "",
        pattern=f"^$|^{MODEL_NAME}$",
        description="name that clients request; empty: the directory's name",
    )
    dtype: Literal["auto", "float32", "bfloat16", "float64"] = Field(
        "auto", description="element type; auto takes the checkpoint's"
    )
    device: str = Field("cpu", pattern=r"^(cpu|cuda(:\d+)?)$", description="cpu, cuda or cuda:N")
    kv_bytes: Bytes = Field(
        512 * MIB, ge=64 * 1024, description="memory for the engine's own KV pages"
    )
    kv_idle_seconds: float = Field(
        30,
        ge=0,
        le=86400,
        description="KV that no request used for this long leaves the engine's pages if the store "
        "holds it, and is fetched again when needed; 0: never",
    )
    max_running: int = Field(64, ge=1, le=65536, description="sequences in one batch")
    max_waiting: int = Field(
        256,
        ge=0,
        le=1_000_000,
        description="sequences that may wait beside `max_running`; more are handed back, to be "
        "placed anew",
    )
    paused_share: float = Field(
        0.25,
        ge=0,
        le=1,
        description="of the KV pages, what streams keep at most that wait for their clients to "
        "read; the others give theirs up and are computed again. Not vllm: its streams always do",
    )
    chunk_tokens: int = Field(
        512, ge=1, le=1_000_000, description="prompt tokens computed in one step, at most"
    )
    decode_chunk_tokens: int = Field(
        0,
        ge=0,
        le=1_000_000,
        description="the same for a step that also decodes, which it delays; 0: 32 on a decode "
        "worker, chunk_tokens elsewhere",
    )
    threads: int = Field(
        0,
        ge=0,
        le=4096,
        description="compute threads; 0: the library's choice, at most the cgroup's CPU quota",
    )
    native_threads: int = Field(
        0,
        ge=0,
        le=4096,
        description="compute threads of the compiled operators where they compute the products "
        "too (`deterministic`), and wait for no thread that has no core; 0: as many as `threads`",
    )
    cores: Cores = Field(
        (), description="CPU cores to pin compute threads to, like 0,2-3; empty: not pinned"
    )
    nice: int = Field(
        0,
        ge=0,
        le=19,
        description="niceness of compute threads, on top of the process's: of cores that workers "
        "share, one that is nicer leaves more to the others while these compute",
    )
    native: Literal["auto", "off", "required"] = Field(
        "auto",
        description="compiled operators on CPU: auto takes them where they were built "
        "(`baton up` and `python -m baton.engine.native.build` do), required builds them at start",
    )
    native_reason: str = Field(
        "",
        description="why native is off, for `baton status`; `baton up` sets it",
    )
    deterministic: Literal["auto", "off", "required"] = Field(
        "auto",
        description="the same tokens in bfloat16 whatever else is computed and wherever a stream "
        "goes on, by compiled operators on CPU: auto where that costs nothing (not with AMX)",
    )
    context_tokens: int = Field(
        0, ge=0, description="longest prompt plus output; 0: the checkpoint's"
    )
    sampling_defaults: Literal["checkpoint", "none"] = Field(
        "checkpoint",
        description="parameters of requests that do not say them: those of the checkpoint's "
        "generation_config.json, or none",
    )
    self_check: bool = Field(
        True,
        description="torch, vllm: at start, hand a short prompt's KV out, evict it, write it back "
        "and go on; the engine does not start unless the tokens are the same",
    )
    adapters: Adapters = Field(
        {},
        description="LoRA adapters, directories as PEFT writes them by the names that clients "
        f"request: name=directory,…; at most {MAX_ADAPTERS}",
    )
    max_adapter_rank: int = Field(
        16, ge=1, le=512, description="the highest rank that an adapter may have"
    )
    block_tokens: int = Field(
        0,
        ge=0,
        le=4096,
        description="vllm, sim: tokens per KV block; with vllm on CPU a multiple of 32; 0: 32 "
        "there, 16 elsewhere",
    )
    tensor_parallel: int = Field(
        1, ge=1, le=64, description="vllm: ranks that share each layer, a process or a GPU each"
    )
    exact_draws: bool = Field(
        True,
        description="vllm: sampled outputs go on in any worker with the same tokens; off, vLLM "
        "samples by itself and they do not",
    )
    speculative_tokens: int = Field(
        0,
        ge=0,
        le=64,
        description="vllm: tokens proposed per step by looking up n-grams of the context; turns "
        "exact_draws off; 0: none",
    )
    speculative_ngram: int = Field(
        3, ge=1, le=32, description="vllm: the longest n-gram that is looked up"
    )
    async_scheduling: Literal["auto", "on", "off"] = Field(
        "auto",
        description="vllm: plan a step while another is computed; auto: on a GPU, not on CPU",
    )
    vllm_args: JsonTable = Field(
        default_factory=dict,
        description="vllm: further engine arguments of vLLM, as JSON, like "
        '{"quantization": "fp8"}; not those that Baton sets',
    )
    sim_prefill_tokens_per_second: float = Field(
        20000, gt=0, description="sim: prompt tokens prefilled per second"
    )
    sim_decode_step_seconds: float = Field(0.005, ge=0, description="sim: one decode step")
    sim_decode_sequence_seconds: float = Field(
        0.0001, ge=0, description="sim: added to a decode step by each sequence in it"
    )
    sim_time_scale: float = Field(
        1.0, ge=0, description="sim: factor on all its times; 0 takes no time at all"
    )
    sim_kill_token: int = Field(
        -1,
        ge=-1,
        description="sim: for tests of faults: the worker dies when it computes this token; "
        "-1: of none",
    )
