"""Convolutions on CPUs: implicit GEMM by offset tables, depthwise convolutions, packing of images and weights."""
