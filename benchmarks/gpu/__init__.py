"""Parts of benchmarks/gpu_suite.sh. Each is a command that writes one JSON document."""
