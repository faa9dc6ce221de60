"""Whether tests notice a wrong line: ``python -m benchmarks.mutants``."""
