"""One module a family of tasks; each builds `bert_tf.training.task.Task` records."""
