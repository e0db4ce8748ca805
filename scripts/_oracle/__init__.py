"""Independent models of the broker: naive decoders, disks that lose power, expectations.

Tests and the scripts for fuzzing and power cuts check the broker against them. None shares code
with the broker.
"""
