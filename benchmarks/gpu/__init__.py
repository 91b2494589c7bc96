"""The parts of benchmarks/gpu_suite.sh: each is a command that writes one JSON document."""
