"""Files, processes, progress, settings and memory: what every room may use, and what knows nothing of learning."""
