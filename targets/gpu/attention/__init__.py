"""Emission of FlashAttention on GPUs: online softmax, tiles in shared memory, `mma.sync` fragments."""
