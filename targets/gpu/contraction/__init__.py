"""Emission of GEMM on GPUs: tensor-core and FMA tiles, multi-stage pipelines, split-K, skinny products."""
