"""One module per family of tasks; each builds `bert_tf.training.task.Task` objects."""
