"""Engine benchmarks: compute speed, compared with the machine's limits and with vLLM."""
