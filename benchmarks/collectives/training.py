"""Data-parallel training on 1, 2 and 4 devices: epochs of examples/digits_data_parallel.py, in turns."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from rich.console import Console

import stablexla as sx

EXAMPLES = Path(__file__).parents[2] / "examples"
DEVICES = (1, 2, 4)
BATCHES = (32, 1024)
ROUNDS = 20
ALONE = "1, examples/digits.py"


def measure_training(console: Console) -> dict[str, dict[str, float]]:
    """Seconds of an epoch in the best round, by the size of the minibatches and the way of running."""
    sys.path.insert(0, str(EXAMPLES))
    digits, parallel = (importlib.import_module(name) for name in ("digits", "digits_data_parallel"))
    found = {}
    for batch in BATCHES:
        digits.BATCH = batch
        given = _arguments(digits, parallel)
        images = len(given[2])
        alone, one_thread = digits.epoch_computation(images), sx.CompileOptions(num_threads=1)
        calls: dict[str, Callable[[], object]] = {
            f"{ALONE}, one thread": partial(sx.compile(alone, options=one_thread), *given),
            ALONE: partial(sx.compile(alone), *given),
            **{str(devices): partial(parallel.Trainer(images, devices).epoch, *given) for devices in DEVICES},
        }
        found[str(batch)] = in_turns(calls)
        for name, seconds in found[str(batch)].items():
            console.print(f"training, batches of {batch}, devices: {name}: {seconds * 1e3:.2f} ms an epoch")
    return found


def in_turns(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The least seconds of each in some rounds."""
    found = dict.fromkeys(calls, float("inf"))
    for number in range(ROUNDS):
        for name in calls if number % 2 else reversed(calls):
            start = perf_counter()
            calls[name]()
            found[name] = min(found[name], perf_counter() - start)
    return found


def _arguments(digits: Any, parallel: Any) -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    images, classes, _, _ = digits.load_data(rng)
    network = digits.first_network(rng)
    targets = np.eye(digits.WIDTHS[-1], dtype=np.float32)[classes]
    return network, parallel.zeros_like(network), images, targets, np.float32(0.05)
