"""What the emitters of all targets stand on: the language for loops and vectors, loop nests, and the registry."""
