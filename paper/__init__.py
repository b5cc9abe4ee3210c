"""What reproduces the paper, outside the wheel: likelihood studies, runs, results and their page."""
