"""Programs that another run has lowered already: `compile` goes on from the stage that their first line names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stablexla.compiling.request import STAGE, is_lowered
from stablexla.dialects.errors import CompileError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.interop.encodings.formats import Format, recognise
from stablexla.targets.pipeline.driver import side_after
from stablexla.targets.pipeline.dump import Header, parse_stage
from stablexla.targets.pipeline.options import DEFAULT_TARGET, CompileOptions
from stablexla.targets.pipeline.pipelines import Pipeline
from stablexla.targets.registry import Target, find_target, pipeline_of
from stablexla.targets.signature.signature import Signature


@dataclass(frozen=True)
class StagedText:
    """A text that `stablexla-opt --stage` or a dump wrote.

    Attributes:
        file: its name in errors.
    """

    header: Header
    text: str
    file: str

    @staticmethod
    def of(program: Any, file: str = "<text>") -> StagedText | None:
        """Return the text of a program, if it says that it was lowered; `file` is the name of what is in no file."""
        data = program
        if isinstance(program, Path):
            file, data = str(program), program.read_bytes() if is_lowered(program) else None
        if isinstance(data, (bytes, bytearray)):
            if not data.startswith(STAGE) or recognise(bytes(data)) is not Format.TEXT:
                return None
            data = data.decode(errors="replace")
        header = Header.read(data) if isinstance(data, str) and data.startswith(STAGE.decode()) else None
        return StagedText(header, data, file) if header is not None and header.stage != "source" else None

    def target(self, asked: str) -> Target:
        """Return the target that it was lowered for.

        Raises:
            CompileError: `asked` is another one, and not the default.
        """
        name = self.header.target
        if asked not in (DEFAULT_TARGET, name) and str(find_target(asked).name) != str(find_target(name).name):
            raise CompileError(f"{self.file}: it was lowered for {name}, and cannot become a program for {asked}")
        return find_target(name)

    def rest(self, target: Target, options: CompileOptions) -> Pipeline | None:
        """Return the steps that are left; None for a program that is still StableHLO.

        Raises:
            CompileError: the target has no such stage, or its text is no MLIR.
        """
        stage, whole = self.header.stage, pipeline_of(target, options)
        if stage not in whole:
            raise CompileError(f"{self.file}: {target.name} has no stage {stage!r}", hint=" or ".join(whole.names))
        if stage in target.texts:
            before = whole.names[whole.index(stage) - 1]
            raise CompileError(
                f"{self.file}: the text of the stage {stage!r} is for reading, and not read back",
                hint=f"--stage={before}, from which a program goes on",
            )
        return None if side_after(whole, stage) == "stablehlo" else whole.after(stage)

    def module(self, whole: Pipeline) -> Any:
        """Parse it.

        Raises:
            CompileError: it does not parse or verify.
        """
        return parse_stage(self.text, side_after(whole, self.header.stage), file=self.file)

    def signature(self) -> Signature:
        """Return the signature of the program that was lowered.

        Raises:
            CompileError: the second line does not say it.
        """
        if self.header.signature is None:
            raise CompileError(
                f"{self.file}: its second line, // program: ..., does not say what the parameters and results are",
                hint=f"stablexla-opt --from-stage={self.header.stage}, which writes it for a main that takes arrays",
            )
        return self.header.signature
