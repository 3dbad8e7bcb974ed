"""BERT's block so many times in a row: how compiling grows with the number of equal layers."""

from __future__ import annotations

import numpy as np

from benchmarks.models.bert import enter

for layers in (1, 2, 4, 8, 16, 32):
    enter(f"layers-{layers}", 1, 128, np.float32, layers, family="layers", group="compile")
