"""docs/architectures.md, from the table in baton/engine/support/architectures.py."""

from baton.engine.support.architectures import ARCHITECTURES, Architecture
from baton.engine.testing.random_families import FAMILIES, VLLM_FAMILIES, VLLM_STATE_FAMILIES
from scripts.docs.table import code, table

HEAD = ("`architectures` in config.json", "torch", "vllm")
INTRODUCTION = """# Architectures

This page lists the architectures that `baton up`, `baton demo` and workers know, for operators who choose a
model or an engine. They read `architectures` in config.json and reject an unsupported one before anything
starts. [vllm.md](vllm.md#which-models) explains windows and the kinds of KV, [models.md](models.md) how to
get a model.

- **exact**: served, and tests compare greedy tokens in fp32 (Qwen 3 Next: in bf16, within rounding) with those of a reference, transformers for torch
  and stock vLLM for vllm: computed alone, continued from a cached prefix, and continued from KV of another
  engine in the middle of the output.
- **yes**: served, not compared here. Workers check at start that moved KV gives the same tokens.
- Otherwise the reason why it is not supported.

Layers with a sliding window keep the KV of the window; with vllm, of the whole context where no layer attends to
it. With `--engine vllm`, vLLM decides on architectures that the table lacks. The simulator takes the models of
the torch engine.

"""


def page() -> str:
    """Return the page."""
    compared = {f"{FAMILIES[name][0]}ForCausalLM" for name in VLLM_FAMILIES + VLLM_STATE_FAMILIES}
    rows = [
        (code(name), "exact" if row.torch else "no", _vllm(row, name in compared))
        for name, row in sorted(ARCHITECTURES.items())
    ]
    return INTRODUCTION + table(HEAD, rows)


def _vllm(row: Architecture, is_compared: bool) -> str:
    if row.needs:
        return f"no: {row.needs}"
    return "exact" if is_compared else "yes"
