"""The target's names and stages, and what is refused; nothing here needs a GPU."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import stablexla as sx
from stablexla.targets.runtime.gpu_driver import device_chips
from stablexla.tools import compile as compile_
from stablexla.tools import opt
from tests.targets.gpu.ptxas import find_ptxas


def scaled() -> sx.XlaComputation:
    b = sx.XlaBuilder("scaled")
    return b.build(sx.exp(b.parameter(0, sx.f32[100]) * 2))


class TestNames:
    def test_a_target_is_a_text(self) -> None:
        assert sx.gpu.target(chip="sm_90") == "gpu:sm_90,ptx78"
        assert sx.gpu.target("sm_90a", ptx=84) == "gpu:sm_90a,ptx84"
        assert sx.compile(scaled(), target="gpu:sm_80").target == "gpu:sm_80,ptx78"
        assert sx.compile(scaled(), target=sx.gpu.target(chip="sm_75")).target == "gpu:sm_75,ptx78"

    @pytest.mark.parametrize(
        ("chip", "ptx", "said"),
        [
            ("sm_91", None, "there is no chip 'sm_91'"),
            ("sm_100", 80, "sm_100 needs PTX 8.6, not 8.0"),
            ("sm_80", 99, "there is no version 99 of PTX"),
            ("sm_80", True, "there is no version True of PTX"),
        ],
    )
    def test_what_does_not_exist_is_refused(self, chip: str, ptx: int | None, said: str) -> None:
        with pytest.raises(sx.CompileError, match=said):
            sx.gpu.target(chip=chip, ptx=ptx)

    @pytest.mark.parametrize(
        "text", ["gpu:sm_90,sm_80", "gpu:h100", "gpu:sm_80,emulated", "gpu:sm_90,ptx12", "cpu:sm_90", "gpus"]
    )
    def test_texts_that_name_nothing(self, text: str) -> None:
        with pytest.raises(sx.CompileError):
            sx.compile(scaled(), target=text)


class TestStages:
    def test_each_can_be_read(self) -> None:
        executable = sx.compile(scaled(), target=sx.gpu.target(chip="sm_90"))
        assert executable.stages[-5:] == ("gpu", "nvvm", "ptx", "host", "llvm")
        assert "gpu.launch_func" in executable.ir("gpu")
        assert "nvvm.kernel" in executable.ir("nvvm")
        ptx = executable.ir("ptx")
        assert ".version 7.8" in ptx
        assert ".target sm_90" in ptx
        assert "ld.global.nc.v4" in ptx

    def test_the_pipeline_reads_back(self) -> None:
        pipeline = sx.pipeline("gpu")
        assert sx.Pipeline.parse(str(pipeline)) == pipeline


def test_denormals_count_as_zero_on_request() -> None:
    ptx = [
        sx.compile(scaled(), target="gpu:sm_80", options=sx.CompileOptions(flush_denormals=flush)).ir("ptx")
        for flush in (False, True)
    ]
    assert [".ftz.f32" in text for text in ptx] == [False, True]


@pytest.mark.skipif(bool(device_chips()), reason="there is a GPU")
def test_without_a_driver_it_compiles_and_says_so() -> None:
    executable = sx.compile(scaled(), target="gpu")
    assert executable.parameters[0].shape == (100,)
    with pytest.raises(sx.ExecutionError, match="no CUDA driver"):
        executable.execute([np.ones(100, np.float32)])
    with pytest.raises(sx.ExecutionError, match="no CUDA driver"):
        executable(np.ones(100, np.float32))


@pytest.mark.skipif(bool(device_chips()), reason="there is a GPU")
def test_nothing_is_run_on_several_devices_or_compared() -> None:
    b = sx.XlaBuilder("summed")
    computation = b.build(sx.cross_replica_sum(b.parameter(0, sx.f32[8])))
    with pytest.warns(UserWarning, match="on the host, not on the GPU: collective"):
        both = sx.compile(computation, target="gpu", num_replicas=2)
    with pytest.raises(sx.ExecutionError, match="several devices do not run on GPUs"):
        both.execute_replicated([[np.ones(8, np.float32)]] * 2)
    with pytest.raises(sx.StablexlaError, match="no CUDA driver"):
        sx.compile(scaled(), target="gpu").compare([np.ones(100, np.float32)])


class TestFiles:
    def test_saved(self, tmp_path: Path) -> None:
        executable = sx.compile(scaled(), target="gpu:sm_90")
        executable.save(tmp_path / "scaled.sxe")
        loaded = sx.load_executable(tmp_path / "scaled.sxe")
        assert (loaded.target, loaded.ir("ptx")) == ("gpu:sm_90,ptx78", executable.ir("ptx"))
        assert loaded.parameters == executable.parameters
        assert loaded._function.image is not None
        assert loaded._function.image("") == executable.ir("ptx").encode() + b"\0"

    @pytest.mark.skipif(find_ptxas() is None, reason="no ptxas: pip install stablexla[gpu]")
    def test_saved_with_machine_code(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        sx.compile(scaled(), target="gpu:sm_90a").save(tmp_path / "scaled.sxe")
        monkeypatch.setenv("STABLEXLA_PTXAS", "none")
        image = sx.load_executable(tmp_path / "scaled.sxe")._function.image
        assert image is not None
        assert image("sm_90").startswith(b"\x7fELF")
        with pytest.raises(sx.ExecutionError, match="compiled for sm_90a, which a GPU of sm_100 cannot run"):
            image("sm_100")

    def test_compiled_in_another_process(self) -> None:
        apart = sx.compile(scaled(), target="gpu:sm_90", options=sx.CompileOptions(isolated=True))
        assert apart.ir("ptx") == sx.compile(scaled(), target="gpu:sm_90").ir("ptx")

    def test_cached_for_each_chip(self, tmp_path: Path) -> None:
        options = sx.CompileOptions(cache=tmp_path)
        for chip in ("sm_80", "sm_80", "sm_90"):
            executable = sx.compile(scaled(), target=f"gpu:{chip}", options=options)
            assert f".target {chip}" in executable.ir("ptx")
        assert len(list(tmp_path.iterdir())) == 2


class TestTools:
    def test_stages(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        file = tmp_path / "scaled.mlir"
        file.write_text(scaled().text())
        assert opt.main([str(file), "--target=gpu:sm_90", "--stage=gpu"]) == 0
        assert "gpu.launch_func" in capsys.readouterr().out
        assert opt.main([str(file), "--target=gpu:sm_91"]) == 1
        assert "there is no chip 'sm_91'" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("tool", "target", "said"),
        [(opt, "tpu", "'tpu' is none of cpu, gpu"), (compile_, "gpu", "for gpu there are .ptx, .cubin, .so, not")],
    )
    def test_refused(
        self, tool: ModuleType, target: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as ended:
            tool.main(["program.mlir", "-o", str(tmp_path / "program.o"), "--target", target])
        assert ended.value.code == 2
        assert said in capsys.readouterr().err

    def test_kernels_in_files(self, tmp_path: Path) -> None:
        file, made = tmp_path / "scaled.mlir", tmp_path / "scaled.ptx"
        file.write_text(scaled().text())
        assert compile_.main([str(file), "-o", str(made), "--target", "gpu:sm_90"]) == 0
        assert ".target sm_90" in made.read_text()

    def test_a_cubin_needs_ptxas(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file, made = tmp_path / "scaled.mlir", tmp_path / "scaled.cubin"
        file.write_text(scaled().text())
        monkeypatch.setenv("STABLEXLA_PTXAS", "none")
        assert compile_.main([str(file), "-o", str(made), "--target", "gpu:sm_90"]) == 1
        assert "no ptxas that knows sm_90" in capsys.readouterr().err
        assert not made.exists()


def test_what_runs_on_the_host_is_named() -> None:
    sx.register_custom_call("test_gpu_half", lambda x: x / 2)
    try:
        b = sx.XlaBuilder("halved")
        x = b.parameter(0, sx.f32[4])
        computation = b.build(sx.custom_call("test_gpu_half", (x + 1,), sx.f32[4]) * 3)
        with pytest.warns(UserWarning, match="on the host, not on the GPU: test_gpu_half"):
            sx.compile(computation, target="gpu")
    finally:
        sx.unregister_custom_call("test_gpu_half")
