"""How fast quantizers and dequantizers are, side by side: ``pytest suite/benchmarks``."""
