"""Import passes: rewrite operations of other producers and dialects to those that the lowering supports."""
