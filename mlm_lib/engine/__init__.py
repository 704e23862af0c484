"""What no lesson builds: files, batches, logs, checkpoints. It imports `checks` and itself."""
