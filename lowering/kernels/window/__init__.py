"""Window reductions: unrolled windows, loops over windows, cumulative scans, and select_and_scatter."""
