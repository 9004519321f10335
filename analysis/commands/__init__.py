"""The commands of `python -m analysis`, one a file. Heavy imports stay inside functions: `--help` is fast."""
