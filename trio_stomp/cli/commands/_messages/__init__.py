"""The commands that send and receive messages."""
