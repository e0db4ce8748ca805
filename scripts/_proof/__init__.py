"""What the measured proofs share: a broker that is watched, its DIAG, the load, and the judge."""
