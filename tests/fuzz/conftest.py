import pytest
import torch

torch.set_warn_always(True)  # a warning that came once only could not be repeated


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """After `make fuzz`: how many calls ended in an answer, and how many in an error of ours."""
    from fuzzing import ASKED, COUNTS

    for test in dict.fromkeys(test for test, _ in COUNTS if ASKED):
        terminalreporter.line(f"{test}: {COUNTS[test, 'answer']} answers, {COUNTS[test, 'refusal']} refusals")
