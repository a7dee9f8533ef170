"""What is computed from telemetry: history, figures, findings, predictions, comparisons, recordings."""
