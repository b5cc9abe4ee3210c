"""Training runs: configuration, run folder, training loop, and a trained run at work."""
