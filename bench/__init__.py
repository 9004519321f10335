"""What is timed: sweeps, clocks, the rows they leave, and one question a file (`bench_*.py`)."""
