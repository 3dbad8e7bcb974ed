"""Emission of convolutions on GPUs: implicit GEMM on tensor and scalar cores, depthwise convolutions."""
