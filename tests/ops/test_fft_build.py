"""What the builder emits for fft, and what it refuses."""

from __future__ import annotations

import pytest

import stablexla as sx
from tests.ops.building import build, refused


@pytest.mark.parametrize(
    ("kind", "operand", "lengths", "result"),
    [
        ("FFT", sx.c64[4], (4,), sx.c64[4]),
        ("IFFT", sx.c128[2, 3, 4, 5], (3, 4, 5), sx.c128[2, 3, 4, 5]),
        ("RFFT", sx.f32[2, 16], (16,), sx.c64[2, 9]),
        ("RFFT", sx.f64[5, 17], (5, 17), sx.c128[5, 9]),
        ("RFFT", sx.f32[3, 0], (0,), sx.c64[3, 0]),
        ("IRFFT", sx.c64[9], (16,), sx.f32[16]),
        ("IRFFT", sx.c64[9], (17,), sx.f32[17]),
        ("IRFFT", sx.c128[1], (1,), sx.f64[1]),
        ("IRFFT", sx.c64[2, 0], (2, 0), sx.f32[2, 0]),
        ("FFT", sx.c64[0, 4], [4], sx.c64[0, 4]),
    ],
)
def test_shapes(kind, operand, lengths, result):
    assert build(lambda x: sx.fft(x, kind, lengths), operand).result_shape == result


class TestRefusals:
    def test_fft_i1(self):
        error = refused("I1", lambda x: sx.fft(x, "RFFT", (4,)), sx.f16[4])
        assert "f32, f64, c64 or c128" in str(error)
        refused("I1", lambda x: sx.fft(x, "RFFT", (4,)), sx.s32[4])

    def test_fft_i2(self):
        error = refused("I2", lambda x: sx.fft(x, "HFFT", (4,)), sx.c64[4])
        assert "not 'HFFT'" in str(error)

    def test_fft_c1(self):
        error = refused("C1", lambda x: sx.fft(x, "FFT", (4, 4)), sx.c64[4])
        assert "2 sizes, and operand has rank 1" in str(error)
        refused("C1", lambda x: sx.fft(x, "FFT", (1,)), sx.c64[()])

    @pytest.mark.parametrize(
        ("kind", "operand"), [("FFT", sx.f32[4]), ("IFFT", sx.f64[4]), ("RFFT", sx.c64[4]), ("IRFFT", sx.f32[3])]
    )
    def test_fft_c2(self, kind, operand):
        error = refused("C2", lambda x: sx.fft(x, kind, (4,)), operand)
        assert f"{kind} takes " in str(error)

    def test_fft_c3(self):
        refused("C3", lambda x: sx.fft(x, "FFT", ()), sx.c64[4])
        error = refused("C3", lambda x: sx.fft(x, "FFT", (2, 2, 2, 2)), sx.c64[2, 2, 2, 2])
        assert "one to three sizes, not 4" in str(error)

    def test_fft_c4(self):
        error = refused("C4", lambda x: sx.fft(x, "RFFT", (5,)), sx.f32[4])
        assert "fft_length is (5,), and the last dimensions of operand are (4,)" in str(error)
        refused("C4", lambda x: sx.fft(x, "IRFFT", (5, 4)), sx.c64[4, 3])

    def test_fft_c5(self):
        error = refused("C5", lambda x: sx.fft(x, "IRFFT", (6,)), sx.c64[3])
        assert "takes 4 in the last dimension, not 3" in str(error)
        assert "4 or 5" in str(error)

    def test_lengths_of_complex_arrays(self):
        """XLA takes these, and leaves what is beyond the length undefined."""
        refused("", lambda x: sx.fft(x, "FFT", (3,)), sx.c64[4])
        refused("", lambda x: sx.fft(x, "FFT", 4), sx.c64[4])
        refused("", lambda x: sx.fft(x, "FFT", ("a",)), sx.c64[4])
        refused("", lambda x: sx.fft(3.0, "FFT", (4,)), sx.c64[4])
