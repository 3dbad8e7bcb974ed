"""Looking into compiled programs: where they first go wrong, what became of each operation, where time goes."""
