"""Random combinations of features of queues on a real broker, and a model of what each must do."""
