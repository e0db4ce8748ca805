"""Common parts of the measured proofs: a watched broker, its DIAG messages, load and verdicts."""
