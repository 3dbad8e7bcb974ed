"""Record of how each composite was compiled, as a kernel or by decomposition, read while the pipeline runs."""

from __future__ import annotations

from typing import Any

import jaxlib.mlir.ir as hlo_ir

from stablexla.targets.pipeline.driver import Watcher
from stablexla.targets.pipeline.pipelines import Step
from stablexla.targets.stablehlo.inlining import NOTE


class CompositeWatcher(Watcher):
    """Reads the note that the pass on composites leaves on the module."""

    def __init__(self) -> None:
        self.ways: dict[str, str] = {}

    def after_step(self, number: int, step: Step, module: Any, seconds: float) -> None:
        if NOTE in module.operation.attributes:
            noted = hlo_ir.DictAttr(module.operation.attributes[NOTE])
            self.ways = {n.name: str(hlo_ir.StringAttr(n.attr).value) for n in noted}
