"""Legalization of quantized types to arithmetic on their storage integers and on floats."""
