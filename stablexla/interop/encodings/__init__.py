"""Encodings of serialized programs: portable artifacts, protocol buffers, exported programs, archives."""
