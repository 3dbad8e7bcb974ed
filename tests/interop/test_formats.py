"""Programs in every form and version that can be read, and what is said of those that cannot."""

from __future__ import annotations

import math
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jaxlib.mlir.ir as ir
import numpy as np
import pytest

import stablexla as sx
from stablexla.interop.encodings import reader
from stablexla.interop.encodings.bytecode import Cursor, MalformedError, read_bytecode
from stablexla.interop.encodings.file_information import inform
from stablexla.interop.encodings.formats import Format, recognise, to_bytecode
from stablexla.interop.encodings.versions import CURRENT, MINIMUM, resolve, serialise, targets
from stablexla.interop.encodings.writers import write
from stablexla.targets.pipeline.printing import Form
from tests import oracles
from tests.fuzz.damage import FAMILIES_IN_TURN
from tests.fuzz.generate import draw
from tests.ops.samples import sample
from tests.versions import check_page

# No operation in it is younger than StableHLO 0.9; tanh and the reduction have changed since.
TEXT = """module @affine attributes {mhlo.num_partitions = 1 : i32} {
  func.func private @squash(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
    %0 = stablehlo.tanh %x : tensor<2x3xf32>
    return %0 : tensor<2x3xf32>
  }
  func.func public @main(%x: tensor<2x3xf32>, %v: tensor<3xf32>) -> (tensor<2x3xf32>, tensor<2xf32>, tensor<2x3xi1>) {
    %0 = stablehlo.broadcast_in_dim %v, dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32>
    %1 = stablehlo.add %x, %0 : tensor<2x3xf32>
    %c = stablehlo.constant dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.5]]> : tensor<2x3xf32>
    %2 = stablehlo.multiply %1, %c : tensor<2x3xf32>
    %3 = func.call @squash(%2) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %z = stablehlo.constant dense<0.0> : tensor<f32>
    %4 = stablehlo.reduce(%3 init: %z) applies stablehlo.add across dimensions = [1]
        : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>
    %5 = stablehlo.compare GT, %1, %c : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
    return %3, %4, %5 : tensor<2x3xf32>, tensor<2xf32>, tensor<2x3xi1>
  }
}
"""


def one(operation: str, shape: str = "tensor<2xf32>") -> str:
    """A module of one operation on %x."""
    return f"func.func @main(%x: {shape}) -> {shape} {{\n  %0 = {operation}\n  return %0 : {shape}\n}}"


ARGUMENTS = (np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3), np.array([0.5, -0.25, 0.125], np.float32))


@pytest.fixture(scope="module")
def expected() -> list[np.ndarray]:
    """The interpreter's results of the text itself."""
    return oracles.interpreter(TEXT, ARGUMENTS)


@pytest.fixture(scope="module")
def module() -> ir.Module:
    return sx.load(TEXT)


def same(program: object, expected: list[np.ndarray]) -> None:
    """Runs a program and compares: tanh is 2 ULP of the interpreter's at most, all else exact."""
    results = sx.compile(program).execute(list(ARGUMENTS))  # type: ignore[arg-type]
    for ours, theirs in zip(results, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=3e-7)


class TestEveryForm:
    @pytest.mark.parametrize("form", [Format.TEXT, Format.BYTECODE, Format.ARTIFACT, Format.HLO_TEXT, Format.HLO_PROTO])
    def test_is_recognised_and_runs(self, form: Format, module: ir.Module, expected, tmp_path: Path) -> None:
        data = write(module, form)
        assert recognise(data) is form
        same(data, expected)
        path = tmp_path / "program.any"  # what a file is, is not seen by its name
        path.write_bytes(data)
        same(path, expected)

    @pytest.mark.parametrize("name", [t.name for t in sx.ELEMENT_TYPES])
    @pytest.mark.parametrize("form", [Format.HLO_TEXT, Format.HLO_PROTO, Format.BYTECODE, Format.ARTIFACT])
    def test_constants_are_all_written(self, form: Format, name: str) -> None:
        weights = sample(name, 120).reshape(3, 40)
        b = sx.XlaBuilder("weights")
        text = str(b.build(b.constant(weights)))
        if name in ("f6e2m3fn", "f6e3m2fn") and form in (Format.HLO_TEXT, Format.HLO_PROTO):
            with pytest.raises(sx.UnsupportedError, match="cannot be HLO"):  # XLA has no such types
                write(sx.load(text), form)
            return
        result = sx.compile(write(sx.load(text), form))()
        wide = (result, weights) if weights.dtype.kind in "iu" else [a.astype(np.complex128) for a in (result, weights)]
        np.testing.assert_array_equal(*wide)
        signs = [np.signbit([a.real, a.imag]) & ~np.isnan(weights.astype(np.complex128)) for a in wide]
        np.testing.assert_array_equal(*signs)

    def test_generic_text_with_locations(self, module: ir.Module, expected) -> None:
        text = write(module, Format.TEXT, text=Form(debug_info=True, generic=True)).decode()
        assert '"stablehlo.add"' in text
        assert "loc(" in text
        same(text, expected)

    def test_hlo_text_as_str_with_a_comment_before_it(self, module: ir.Module, expected) -> None:
        same("// dumped by XLA\n\n/* twice */ " + write(module, Format.HLO_TEXT).decode(), expected)

    def test_hlo_proto_inside_a_message(self, module: ir.Module, expected) -> None:
        inner = write(module, Format.HLO_PROTO)
        size = b""
        rest = len(inner)
        while rest >= 0x80:
            size, rest = size + bytes([rest & 0x7F | 0x80]), rest >> 7
        data = b"\x0a" + size + bytes([rest]) + inner  # HloProto: its first field is the module
        assert recognise(data) is Format.HLO_PROTO
        same(data, expected)

    @pytest.mark.parametrize("version", range(7))
    def test_every_version_of_bytecode(self, version: int, module: ir.Module, expected) -> None:
        data = to_bytecode(module, version)
        assert read_bytecode(data).version == version
        same(data, expected)

    def test_a_module_of_another_context_is_copied(self, module: ir.Module) -> None:
        copy = sx.load(module)
        copy.operation.attributes["sym_name"] = ir.StringAttr.get("other", copy.context)
        assert "@affine" in str(module)

    def test_vhlo_as_text(self, module: ir.Module, expected) -> None:
        context = module.context
        text = str(ir.Module.parse(serialise(module), context))
        assert "vhlo.add_v1" in text
        same(text, expected)

    def test_mhlo_becomes_stablehlo(self) -> None:
        assert "stablehlo.add" in str(sx.load(one("mhlo.add %x, %x : tensor<2xf32>")))

    def test_file_of_jax_export(self, tmp_path: Path) -> None:
        import jax
        import jax.numpy as jnp
        from jax import export

        shape = jax.ShapeDtypeStruct((3,), jnp.float32)
        data = bytes(export.export(jax.jit(lambda x: jnp.maximum(x, 0) * 2), platforms=["cpu"])(shape).serialize())
        assert recognise(data) is Format.EXPORTED
        path = tmp_path / "program.any"
        path.write_bytes(data)
        np.testing.assert_array_equal(sx.compile(path)(np.array([-1, 0, 3], np.float32)), [0, 0, 6])
        found = inform(data, "x")
        assert (found.stablehlo, found.problem) == (resolve("week-4"), "")
        whole = str(sx.load(data))
        for end in range(0, len(data), 13):
            try:
                assert str(sx.load(data[:end])) == whole  # the program does not come last
            except sx.StablexlaError:
                continue

    def test_buffers(self, module: ir.Module) -> None:
        data = to_bytecode(module)
        for form in (bytearray(data), memoryview(data)):
            assert str(sx.load(form)) == str(module)  # type: ignore[arg-type]


def _artifacts(module: ir.Module) -> Iterator[bytes]:
    """Of each version that has all of the program."""
    for version in reversed(targets()):
        try:
            yield serialise(module, version)
        except sx.UnsupportedError:
            return


class TestEveryVersion:
    def test_all_minor_versions_are_targets(self) -> None:
        assert (targets()[0], targets()[-1]) == (MINIMUM, CURRENT)
        assert len(targets()) == len(set(targets())) > 20

    @pytest.mark.parametrize("version", targets())
    def test_is_read_back(self, version: str, module: ir.Module, expected) -> None:
        data = serialise(module, version)
        assert data[5:].startswith(f"StableHLO_v{version}\0".encode())
        assert sx.load(data).operation.verify()
        assert str(sx.load(data)) == str(module)

    @pytest.mark.parametrize("version", [MINIMUM, "0.12.0", "0.14.0", "0.15.0", "1.0.0", "1.8.0", "1.9.0", CURRENT])
    def test_runs(self, version: str, module: ir.Module, expected) -> None:
        # Between these nothing of the program or its encoding has changed.
        same(serialise(module, version), expected)

    @pytest.mark.parametrize("number", range(len(FAMILIES_IN_TURN)))
    def test_programs_of_every_family(self, number: int) -> None:
        family = FAMILIES_IN_TURN[number]
        drawn = draw(number, ["elementwise", family], statements=6)
        module = sx.load(drawn.program.text)
        read = {str(sx.load(artifact, trusted=True)) for artifact in _artifacts(module)}
        assert len(read) == 1  # which may say less than the module, where that says what is so by default
        results = [sx.compile(program).execute(list(drawn.arguments)) for program in (module, read.pop())]
        for ours, theirs in zip(*results, strict=True):
            assert ours.tobytes() == theirs.tobytes()

    @pytest.mark.parametrize("version", [MINIMUM, "1.0.0", CURRENT])
    def test_a_dimension_of_a_sort_that_is_left_out(self, version: str) -> None:
        """It is the last one, which artifacts do not name."""
        text = """func.func @main(%x: tensor<3x4xf32>) -> tensor<3x4xf32> {
          %0 = "stablehlo.sort"(%x) <{dimension = -1 : i64}> ({
          ^bb0(%a: tensor<f32>, %b: tensor<f32>):
            %1 = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
            stablehlo.return %1 : tensor<i1>
          }) : (tensor<3x4xf32>) -> tensor<3x4xf32>
          return %0 : tensor<3x4xf32>
        }"""
        x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
        for program in (serialise(sx.load(text), version), text.replace("<{dimension = -1 : i64}> ", "")):
            assert "dimension" not in str(sx.load(program))
            np.testing.assert_array_equal(sx.compile(program)(x), -np.sort(-x))

    def test_names(self) -> None:
        assert (resolve("minimum"), resolve("current"), resolve("1.3")) == (MINIMUM, CURRENT, "1.3.0")
        assert MINIMUM < resolve("week-12") < resolve("week-4") < CURRENT

    @pytest.mark.parametrize("name", ["0.8.0", "99.0.0", "new", "1", ""])
    def test_no_version(self, name: str) -> None:
        with pytest.raises(sx.UnsupportedError, match=r"cannot be written|is no version"):
            resolve(name)

    def test_what_an_old_version_lacks(self) -> None:
        module = sx.load(one("stablehlo.tan %x : tensor<2xf32>"))
        before = str(module)
        with pytest.raises(sx.UnsupportedError, match=r"vhlo\.tan_v2[^$]*--target-version=1\.4\.0"):
            serialise(module, "1.0.0")
        assert str(module) == before
        assert serialise(module, "1.4.0")

    def test_dialects_without_promises(self) -> None:
        module = sx.load(one("chlo.erf %x : tensor<2xf32> -> tensor<2xf32>"))
        with pytest.raises(sx.UnsupportedError, match="allow-other-dialects"):
            serialise(module)
        assert "chlo.erf" in str(sx.load(serialise(module, allow_other_dialects=True)))


class TestAnotherTime:
    """Files of newer and older versions, forged."""

    @pytest.fixture
    def artifact(self, module: ir.Module) -> bytes:
        return serialise(module)

    def newer(self, data: bytes) -> bytes:
        return data.replace(CURRENT.encode(), b"1.99.0")

    def test_newer_and_all_is_known(self, artifact: bytes, expected) -> None:
        # Two years of forward compatibility: a newer producer may write what older ones read.
        same(self.newer(artifact), expected)

    def test_newer_operation(self, artifact: bytes) -> None:
        with pytest.raises(sx.UnsupportedError) as caught:
            sx.load(self.newer(artifact).replace(b"multiply_v1", b"multiply_v9"))
        said = str(caught.value)
        assert "artifact of StableHLO 1.99.0" in said
        assert re.search(r"written by +StableHLO_v1\.99\.0", said)
        assert f"StableHLO {MINIMUM} to {CURRENT}" in said
        assert re.search(r"too new +vhlo\.multiply_v9", said)
        assert f"--target-version={CURRENT}" in said

    def test_newer_attribute(self, artifact: bytes) -> None:
        # The code of an attribute that no version has yet: only MLIR's reader can tell.
        data = bytearray(self.newer(artifact))
        cursor = Cursor(bytes(data), data.index(b"\0") + 1)
        kind = None
        while kind != 2:
            kind, contents = cursor.section()
        data[cursor.at - len(contents)] = 0xFF - 2 | 1
        with pytest.raises(sx.UnsupportedError, match=r"StableHLO 1\.99\.0[^$]*MLIR says"):
            sx.load(bytes(data))

    def test_newer_bytecode(self, artifact: bytes) -> None:
        with pytest.raises(sx.UnsupportedError, match=r"bytecode of version 7, which is too new[^$]*versions up to 6"):
            sx.load(b"ML\xefR\x0f" + artifact[5:])

    def test_older(self, artifact: bytes) -> None:
        with pytest.raises(sx.UnsupportedError, match=r"StableHLO 0\.7\.1, which is too old"):
            sx.load(artifact.replace(CURRENT.encode(), b"0.7.1"))

    def test_operation_that_a_newer_mlir_wrote(self, module: ir.Module) -> None:
        data = to_bytecode(module).replace(b"\0multiply\0", b"\0multiqly\0")
        with pytest.raises(sx.UnsupportedError, match=r"written by +MLIR[^$]*stablehlo\.multiqly"):
            sx.load(data)


def _programs_of_jax() -> dict[str, Callable[..., Any]]:
    import jax
    import jax.numpy as jnp
    from jax import lax

    return {
        "loop": lambda x: lax.fori_loop(0, 5, lambda i, c: c * 0.5 + 1, x),
        "branch": lambda x: lax.cond(x[0, 0] > 0.5, lambda y: y + 1, lambda y: y * 2, x),
        "order": lambda x: lax.top_k(x, 2),
        "window": lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (1, 1), "VALID"),
        "index": lambda x: x.at[jnp.array([0, 2])].add(x[jnp.array([3, 1])]),
        "bits": lambda x: jax.random.normal(jax.random.PRNGKey(0), (4, 4)) * x,
        "results": lambda x: (x, (x.astype(jnp.bfloat16), {"a": x > 0.5})),
        "LAPACK": lambda x: jnp.linalg.cholesky(x @ x.T + jnp.eye(4)),
    }


class TestHlo:
    @pytest.mark.parametrize("name", ["loop", "branch", "order", "window", "index", "bits", "results", "LAPACK"])
    def test_what_jax_writes(self, name: str) -> None:
        import jax

        function = jax.jit(_programs_of_jax()[name])
        x = np.linspace(0.125, 1, 16, dtype=np.float32).reshape(4, 4)
        ours = sx.compile(function.lower(x).as_text(dialect="hlo")).execute([x])
        for result, theirs in zip(ours, jax.tree.leaves(function(x)), strict=True):
            np.testing.assert_allclose(result.astype(np.float64), np.asarray(theirs, np.float64), rtol=2e-6)

    @pytest.mark.parametrize("before", ["", "// HloModule other, replica_count=9\n", "/* a\ncomment */ "])
    def test_replicas_and_partitions(self, before: str) -> None:
        text = f"{before}HloModule m, replica_count=4, num_partitions=2\nENTRY e {{ ROOT r = u32[] replica-id() }}"
        executable = sx.compile(text)
        assert (executable.num_replicas, executable.num_partitions) == (4, 2)
        assert "mhlo.num_" not in str(sx.load("HloModule m\nENTRY e { ROOT r = u32[] replica-id() }"))
        again = sx.compile(write(sx.load(text), Format.HLO_TEXT))
        assert (again.num_replicas, again.num_partitions) == (4, 2)

    def test_tuples_within_tuples(self) -> None:
        text = """HloModule m
ENTRY e {
  p = (f32[2], (s32[3])) parameter(0)
  x = f32[2] get-tuple-element(p), index=0
  ROOT r = ((f32[2], (f32[3])), f32[4]) custom-call(x), custom_call_target="outside"
}"""
        module = str(sx.load(text))
        assert "tuple" not in module.replace("output_tuple_indices", "")
        assert "-> (tensor<2xf32>, tensor<3xf32>, tensor<4xf32>)" in module

    def test_a_tuple_that_is_returned_whole(self) -> None:
        tuple_ = "tuple<tensor<2xf32>>"
        text = (
            f"func.func @main() -> {tuple_} {{ %0 = stablehlo.custom_call @f() : () -> {tuple_} return %0 : {tuple_} }}"
        )
        assert "@main() -> tensor<2xf32>" in str(sx.load(text))

    def test_error_has_its_place(self) -> None:
        with pytest.raises(sx.ParseError) as caught:
            sx.load("HloModule m\n\nENTRY e {\n  x = f32[2] parameter(0)\n  ROOT y = f32[2] nonsense(x)\n}")
        assert (caught.value.line, caught.value.file) == (5, "<text>")
        assert "nonsense" in str(caught.value)

    def test_what_xla_calls_by_name(self) -> None:
        text = "HloModule m\nENTRY e { x = f32[3] parameter(0) ROOT y = f32[3] erf(x) }"
        x = [-1.0, 0.25, 2.0]
        result = sx.compile(text)(np.array(x, np.float32))
        np.testing.assert_allclose(result, [math.erf(v) for v in x], rtol=3e-7)

    def test_what_is_no_hlo(self) -> None:
        with pytest.raises(sx.UnsupportedError, match="cannot be HLO text"):
            write(
                sx.load("func.func private @outside() func.func @main() { call @outside() : () -> () return }"),
                Format.HLO_TEXT,
            )


class TestReaderProcess:
    def test_a_crash_is_an_error_and_the_next_file_is_read(self, module: ir.Module) -> None:
        data = to_bytecode(module)
        reader.read_in_child("bytecode", data, "x")
        kept = reader._kept
        assert kept is not None
        kept._process.kill()
        kept._process.wait()
        assert str(sx.load(data)) == str(module)

    def test_threads(self, module: ir.Module) -> None:
        data = to_bytecode(module)
        with ThreadPoolExecutor(4) as pool:
            assert set(pool.map(lambda _: str(sx.load(data)), range(12))) == {str(module)}

    def test_under_limits_of_the_user(self, module: ir.Module) -> None:
        """Less memory than a reader may take; and open files above those that `select` takes."""
        code = """
import os, resource, sys, stablexla as sx
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 2048), most))
taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(1024)]
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (1 << 30)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
print(sx.load(sys.stdin.buffer.read()), end="")
"""
        done = subprocess.run([sys.executable, "-c", code], input=to_bytecode(module), capture_output=True)
        assert (done.stdout.decode().strip(), done.stderr) == (str(module).strip(), b"")

    def test_trusted_bytes_start_no_process(self, module: ir.Module) -> None:
        code = """
import pickle, sys, stablexla as sx
from stablexla.interop.encodings import reader
for data in pickle.load(sys.stdin.buffer):
    sx.load(data, trusted=True)
print(reader._kept)
"""
        forms = (Format.BYTECODE, Format.ARTIFACT, Format.HLO_PROTO, Format.HLO_TEXT)
        files = pickle.dumps([write(module, form) for form in forms])
        done = subprocess.run([sys.executable, "-c", code], input=files, capture_output=True)
        assert (done.stdout, done.stderr) == (b"None\n", b"")

    @pytest.mark.filterwarnings("ignore:os.fork")  # of JAX, which the child does not use
    def test_a_fork_has_a_reader_of_its_own(self, module: ir.Module) -> None:
        data = to_bytecode(module)
        sx.load(data)
        child = os.fork()
        if child == 0:
            os._exit(0 if str(sx.load(data)) == str(module) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert str(sx.load(data)) == str(module)

    def test_no_process_can_be_started(self, module: ir.Module, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object, **__: object) -> None:
            raise OSError(11, "Resource temporarily unavailable")

        monkeypatch.setattr(reader, "_kept", None)
        monkeypatch.setattr(subprocess, "Popen", refuse)
        with pytest.raises(sx.ParseError, match="trusted=True"):
            sx.load(to_bytecode(module))


class TestTables:
    def test_operations_of_every_version(self, module: ir.Module) -> None:
        for version in range(7):
            names = [str(name) for name in read_bytecode(to_bytecode(module, version)).operation_names]
            assert {"builtin.module", "func.func", "stablehlo.tanh", "func.return"} <= set(names)
            assert names.count("stablehlo.add") == 1  # of two in the program

    def test_every_cut_is_seen(self, module: ir.Module) -> None:
        for data in (to_bytecode(module), to_bytecode(module, 0), serialise(module)):
            for end in range(len(data)):
                with pytest.raises(MalformedError):
                    read_bytecode(data[:end])

    def test_counts_larger_than_the_file(self, module: ir.Module) -> None:
        data = to_bytecode(module)
        at = data.index(b"\0", 4) + 3  # behind the producer, and the kind and the size of the section of dialects
        with pytest.raises(MalformedError):
            read_bytecode(data[:at] + b"\0" + b"\xff" * 8 + data[at + 9 :])  # as many dialects as there are numbers


def test_page_is_as_the_script_writes_it() -> None:
    check_page("make_interop_formats")
