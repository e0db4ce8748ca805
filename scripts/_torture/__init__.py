"""Blocking clients that pause, cut, read slowly and leave, and the expectations of each."""
