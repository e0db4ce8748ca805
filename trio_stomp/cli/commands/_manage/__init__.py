"""The commands that look into a broker and change it, by its management interface."""
