"""Complex arithmetic and elementary functions of complex numbers."""
