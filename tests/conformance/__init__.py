"""The conformance suite: the broker from outside, over every transport."""
