"""Train the demo model: `python -m train --out build/model --minutes 60`.

`--from CHECKPOINT` goes on from trained weights, with more conversation, over the last part of the
schedule alone.

A stopped run goes on from its last saved state with the same command. Training ends with the
checkpoint in `<out>/checkpoint`; `python -m train.evaluate` measures it.
"""

import argparse
import logging
import math
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional
from torch.optim import AdamW, Optimizer

from train import state
from train import tokenizer as text_tokenizer
from train.batches import LENGTHS, Batch
from train.export import export, load
from train.feed import Feed
from train.model import Llama, Shape
from train.text.conversation import TASKS

_log = logging.getLogger("train")
_LOG_SECONDS = 20.0
_SAVE_SECONDS = 120.0
_RISE_STEPS = 20
_TRAINED = 0.55
"""Of the schedule, which weights that are given have behind them."""


@dataclass(frozen=True, slots=True)
class Options:
    """One run."""

    out: Path
    begin_from: Path | None
    """A checkpoint to go on from."""
    minutes: float
    steps: int
    """Ends the run after so many steps instead of minutes; then it is the same every time."""
    seed: int
    batch_tokens: int
    rate: float
    device: str
    compile: bool


def main() -> None:
    """Train by the command line's options."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    options, shape, threads = _options()
    if threads:
        torch.set_num_threads(threads)
    torch.set_float32_matmul_precision("high")
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "checkpoint" / "tokenizer.json"
    if options.begin_from is not None and not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes((options.begin_from / "tokenizer.json").read_bytes())
    if not file.exists():
        text_tokenizer.save(text_tokenizer.train(options.seed), file.parent, shape.context)
    tokenizer = Tokenizer.from_file(str(file))
    model = Llama(shape, options.seed)
    if options.begin_from is not None:
        load(model, options.begin_from)
    model.to(options.device)
    _log.info("%.2f M parameters", sum(p.numel() for p in model.parameters()) / 1e6)
    run(options, model, file)
    export(model, tokenizer, file.parent)
    _log.info("checkpoint in %s", file.parent)


def run(options: Options, model: Llama, tokenizer_file: Path) -> None:
    """Train until the budget is spent, saving the state every two minutes."""
    optimizers = _optimizers(model, options.rate)
    saved = state.restore(options.out, model, optimizers) or {}
    step, before = int(saved.get("step", 0)), saved.get("seconds", 0.0)
    if options.compile:
        _compile(model, options)
    begin = logged = kept = time.monotonic()
    table = _Table()

    talk = options.begin_from is not None

    def progress() -> float:
        if options.steps:
            done = step / options.steps
        else:
            done = (before + time.monotonic() - begin) / (60 * options.minutes)
        return _TRAINED + (1 - _TRAINED) * done if talk else done

    feed = Feed(
        tokenizer_file, options.seed, step, options.batch_tokens, model.shape.context, talk=talk
    )
    with feed.running(progress()):
        while (done := progress()) < 1:
            batch = feed.next(done)
            rise = min(1.0, (step + 1) / _RISE_STEPS)  # of optimizers that know nothing yet
            for optimizer in optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = options.rate * rise * _schedule(done)
            losses, targets = _loss(model, batch, options.device)
            weights = torch.from_numpy(batch.weights).to(losses.device)[targets]
            torch.autograd.backward((losses * weights).sum() / weights.sum())
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            step += 1
            table.add(batch, losses.detach().float().cpu(), targets.cpu())
            now = time.monotonic()
            if now - logged > _LOG_SECONDS:
                _log.info("%5.1f%% step %d %s", 100 * done, step, table.line(now - logged))
                logged = now
            if now - kept > _SAVE_SECONDS:
                state.save(options.out, model, optimizers, _point(step, before + now - begin))
                kept = now
    state.save(options.out, model, optimizers, _point(step, before + time.monotonic() - begin))
    _log.info("ended at step %d %s", step, table.line(time.monotonic() - logged))


def _loss(model: Llama, batch: Batch, device: str) -> tuple[Tensor, Tensor]:
    """Losses of the scored targets, and where they are [rows, tokens]."""
    kind = torch.device(device).type
    with torch.autocast(kind, torch.bfloat16):
        hidden = model(
            torch.from_numpy(batch.inputs).to(device), torch.from_numpy(batch.positions).to(device)
        )
        scored = torch.from_numpy(batch.weights > 0).to(device)
        logits = model.logits(hidden[scored])
    targets = torch.from_numpy(batch.targets).to(device)[scored]
    return functional.cross_entropy(logits.float(), targets, reduction="none"), scored


def _compile(model: Llama, options: Options) -> None:
    """Compile the block that all layers share, for every row length, before the clock starts."""
    for block in model.layers:
        block.compile(dynamic=False)
    for length in LENGTHS:
        shape = (max(1, options.batch_tokens // length), length)
        ids = np.zeros(shape, np.int64)
        positions = np.tile(np.arange(length), (shape[0], 1))
        losses, _ = _loss(
            model, Batch(ids, ids, np.ones(shape, np.float32), ids, positions), options.device
        )
        torch.autograd.backward(losses.mean())
        _log.info("compiled for rows of %d tokens", length)
    model.zero_grad(set_to_none=True)


def _optimizers(model: Llama, rate: float) -> list[Optimizer]:
    # Muon's update is scaled to AdamW's, so that one rate serves both.
    matrices = [p for n, p in model.named_parameters() if p.dim() == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.dim() != 2 or "embed" in n]
    muon = torch.optim.Muon(
        matrices, lr=rate, momentum=0.95, weight_decay=0.05, adjust_lr_fn="match_rms_adamw"
    )
    return [muon, AdamW(others, lr=rate, betas=(0.9, 0.95), weight_decay=0.0)]


def _schedule(progress: float) -> float:
    """Rate over the run: a short rise, level, and down along a cosine over the last 45 %."""
    if progress < 0.01:
        return 0.1 + 0.9 * progress / 0.01
    if progress < 0.55:
        return 1.0
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, (progress - 0.55) / 0.45)))


def _point(step: int, seconds: float) -> dict[str, float]:
    return {"step": step, "seconds": seconds}


class _Table:
    """Mean loss by task since the last line."""

    def __init__(self) -> None:
        self._clear()

    def add(self, batch: Batch, losses: Tensor, scored: Tensor) -> None:
        self._tokens += batch.inputs.size
        tasks = torch.from_numpy(batch.tasks)[scored]
        weights = torch.from_numpy(batch.weights)[scored]
        # The value's own tokens, apart from the words around it.
        tasks = torch.where(weights > 1.5, len(TASKS), tasks)
        size = len(TASKS) + 1
        self._sums += torch.bincount(tasks, losses.double(), size)
        self._counts += torch.bincount(tasks, minlength=size)

    def line(self, seconds: float) -> str:
        means = (self._sums / self._counts.clamp(min=1)).tolist()
        text = f"{self._tokens / max(seconds, 1e-9):.0f} tok/s"
        for task, mean in zip((*TASKS, "value"), means, strict=True):
            text += f" {task} {mean:.2f}"
        self._clear()
        return text

    def _clear(self) -> None:
        self._tokens = 0
        self._sums = torch.zeros(len(TASKS) + 1, dtype=torch.float64)
        self._counts = torch.zeros(len(TASKS) + 1, dtype=torch.int64)


def _options() -> tuple[Options, Shape, int]:
    default = Shape()
    parser = argparse.ArgumentParser(description="Train the demo model.")
    parser.add_argument("--out", type=Path, default=Path("build/model"))
    parser.add_argument(
        "--from", dest="begin_from", type=Path, help="a checkpoint to go on from, with more talk"
    )
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--steps", type=int, default=0, help="instead of minutes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--compile", action="store_true", help="needs a C++ compiler on the CPU")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--layers", type=int, default=default.layers)
    parser.add_argument("--hidden", type=int, default=default.hidden)
    parser.add_argument("--mlp", type=int, default=default.mlp)
    found = vars(parser.parse_args())
    shape = Shape(**{name: found.pop(name) for name in ("layers", "hidden", "mlp")})
    threads = found.pop("threads")
    return Options(**found), shape, threads


if __name__ == "__main__":
    main()
