"""The torture: blocking clients that pause, cut, read slowly and leave; and what each may see."""
