"""Window reductions on CPUs: pooling and its gradient, clipped at the edges."""
