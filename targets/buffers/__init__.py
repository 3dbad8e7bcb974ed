"""Buffer assignment: live ranges, aliasing, donation, ping-pong buffers, and the arena of temporaries."""
