"""Read adapter_config.json: the scaling of an adapter's matrices, and other options."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

CONFIG = "adapter_config.json"
_MAX_BYTES = 4 * 1024 * 1024

_NOTHING: Mapping[str, tuple[Any, ...]] = {
    "alora_invocation_tokens": ([],),
    "arrow_config": (),
    "bias": ("none",),
    "kasa_config": (),
    "layer_replication": ([],),
    "lora_bias": (False,),
    "modules_to_save": ([],),
    "monteclora_config": (),
    "target_parameters": ([],),
    "trainable_token_indices": ([], {}),
    "use_bdlora": (False, {}),
    "use_dora": (False,),
    "use_qalora": (False,),
}
"""Options of PEFT that are not supported, and the values with which they have no effect, besides
null. All others concern training, or are read here.
"""

_PLAIN_STARTS = ("gaussian", "eva", "orthogonal", "mica", "lora_ga")
"""Values of init_lora_weights that leave the model's own weights unchanged, besides booleans."""


class AdapterError(Exception):
    """An adapter cannot be used. The text gives the problem and the remedy, but not the adapter."""


class AdapterConfig(msgspec.Struct, frozen=True):
    """An adapter without its matrices: equal for adapters that compute the same function."""

    rank: int = msgspec.field(name="r")
    alpha: float = msgspec.field(name="lora_alpha")
    use_rslora: bool = False
    rank_pattern: dict[str, int] = {}
    alpha_pattern: dict[str, float] = {}

    @property
    def max_rank(self) -> int:
        """Return the highest rank of any module."""
        return max((self.rank, *self.rank_pattern.values()))

    def rank_of(self, module: str) -> int:
        """Return the rank of a module's matrices: that of the first pattern that matches."""
        for pattern, rank in self.rank_pattern.items():
            if re.fullmatch(rf"(.*\.)?({pattern})", module):
                return rank
        return self.rank

    def scale_of(self, module: str) -> float:
        """Return the factor of the product of a module's matrices, as in PEFT."""
        alpha, rank = self.alpha, self.rank_of(module)
        for pattern, value in self.alpha_pattern.items():
            if re.fullmatch(rf"(.*\.)?({pattern})", module):
                alpha = value
                break
        return alpha / math.sqrt(rank) if self.use_rslora else alpha / rank

    def to_bytes(self) -> bytes:
        """Return equal bytes for equal meanings, independent of the file's formatting."""
        return msgspec.json.encode(self, order="sorted")


def read_config(directory: Path) -> AdapterConfig:
    """Read and check an adapter's adapter_config.json.

    Raises:
        AdapterError: it is missing or damaged, or uses an unsupported option.
    """
    path = directory / CONFIG
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise AdapterError(
            f"{path} cannot be read ({error.strerror}): set a directory that PEFT's "
            "save_pretrained wrote"
        ) from error
    if len(data) > _MAX_BYTES:
        raise AdapterError(f"{path} exceeds the limit of {_MAX_BYTES} bytes")
    try:
        document = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise AdapterError(f"{path} is damaged: {error}") from error
    _refuse_unsupported(path, document)
    known = {name: value for name, value in document.items() if value is not None}
    try:
        config = msgspec.convert(known, AdapterConfig)
    except msgspec.ValidationError as error:
        raise AdapterError(f"{path} is damaged: {error}") from error
    _check(path, config)
    return config


def _refuse_unsupported(path: Path, document: Mapping[str, Any]) -> None:
    kind = document.get("peft_type", "LORA")
    if kind != "LORA":
        raise AdapterError(f"{path} has peft_type {kind!r}; only LORA is supported")
    for name, nothing in _NOTHING.items():
        value = document.get(name)
        if value is not None and value not in nothing:
            raise AdapterError(
                f"{path} has {name} = {str(value)[:80]}, which is not supported: train the adapter "
                "without it"
            )
    start = document.get("init_lora_weights", True)
    if isinstance(start, str) and start.lower() not in _PLAIN_STARTS:
        raise AdapterError(
            f"{path} has init_lora_weights = {start[:80]!r}, which changes the model itself: "
            "convert it to a plain adapter (PEFT: path_initial_model_for_weight_conversion)"
        )


def _check(path: Path, config: AdapterConfig) -> None:
    ranks = {"r": config.rank, **config.rank_pattern}
    for name, rank in ranks.items():
        if rank < 1:
            raise AdapterError(f"{path} has rank {rank} for {name}: must be at least 1")
    for alpha in (config.alpha, *config.alpha_pattern.values()):
        if not math.isfinite(alpha):
            raise AdapterError(f"{path} has lora_alpha = {alpha}, which is not supported")
    for pattern in (*config.rank_pattern, *config.alpha_pattern):
        try:
            re.compile(pattern)
        except re.error as error:
            raise AdapterError(f"{path} has the pattern {pattern[:80]!r}: {error}") from error
