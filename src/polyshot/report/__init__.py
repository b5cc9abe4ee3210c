"""Results as tables, figures and one HTML page."""
