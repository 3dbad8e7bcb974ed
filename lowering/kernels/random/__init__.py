"""Random numbers: counter-based generators (Threefry, Philox), and distributions from their bits."""
