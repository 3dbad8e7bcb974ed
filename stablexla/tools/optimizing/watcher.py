"""The watcher of `stablexla-opt`: prints the IR, measures times, keeps a reproducer on request."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from stablexla.targets.pipeline.dump import Header, KnobWatcher, assembly, reproducing
from stablexla.targets.pipeline.pipelines import Element, Pipeline, Step
from stablexla.targets.pipeline.printing import PassTimes, Printer, Printing
from stablexla.tools.common import form_of


def printing_of(given: argparse.Namespace) -> Printing:
    """Return the printing options."""
    return Printing(
        before=_names(given.mlir_print_ir_before),
        after=_names(given.mlir_print_ir_after),
        before_all=given.mlir_print_ir_before_all,
        after_all=given.mlir_print_ir_after_all,
        after_change=given.mlir_print_ir_after_change,
        after_failure=given.mlir_print_ir_after_failure,
        form=form_of(given),
    )


def _names(given: list[str]) -> frozenset[str]:
    return frozenset(name.strip() for words in given for name in words.split(","))


class OptWatcher(KnobWatcher):
    """The watcher of the knobs and options; reproducers only on request: the user has the input."""

    def __init__(
        self, given: argparse.Namespace, name: str, pipeline: Pipeline, source: Any, times: PassTimes | None
    ) -> None:
        super().__init__(name, pipeline, source)
        self._knob = self.pass_by_pass
        self._printer = Printer(printing_of(given))
        self._times = times
        self._reproducer: str | None = given.mlir_pass_pipeline_crash_reproducer
        self.verify_each = None if given.verify_each is None else given.verify_each in ("1", "true")
        self.pass_by_pass |= self._printer.printing.is_any or times is not None or bool(self.verify_each)

    def before_pass(self, step: Step, element: Element, module: Any) -> None:
        self._printer.before(step, element, module)
        if self._times is not None:
            self._times.begin()

    def after_pass(self, step: Step, element: Element, module: Any) -> None:
        if self._times is not None:
            self._times.end(step.name, element.text)
        if self._knob:
            super().after_pass(step, element, module)
        self._printer.after(step, element, module)

    def failed_pass(self, step: Step, element: Element, module: Any) -> None:
        self._printer.failed(step, element, module)

    def failed(self, number: int, step: Step, before: Any) -> str:
        if self._reproducer is None:
            return ""
        path = Path(self._reproducer).absolute()
        stage = "source" if number == 0 else self.pipeline.names[number - 1]
        path.write_text(f"{Header(stage, reproducing(str(path), step, self.pipeline))}\n{assembly(before)}")
        return str(path)
