"""Inspection of compiled programs: the first wrong operation, the fate of each operation, the time of each kernel."""
