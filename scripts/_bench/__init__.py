"""The parts of ``scripts/bench.py``: a broker to measure, connections, and the load."""
