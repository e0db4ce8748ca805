"""Independent models of the broker: naive decoders, disks that lose power, expectations.

The tests and the scripts for fuzzing and power cuts judge the broker by them; none shares code with
what it judges.
"""
