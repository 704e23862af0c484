"""What the lessons use and do not build: batches, files, logs, checkpoints, precision, recipes.

Everything here may import `mlm_lib.checks` and other files of `engine`, and nothing else of the
package, so that each file can be read alone. The training loop itself is in `mlm_lib.training`.
"""
